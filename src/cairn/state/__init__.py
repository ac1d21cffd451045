"""Live Python state to trees and back."""
