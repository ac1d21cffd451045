"""A small language-model trainer in numpy, read in one sitting."""
