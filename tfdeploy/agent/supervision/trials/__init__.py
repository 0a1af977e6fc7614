"""Trials: the chief's supervisor hands them out (board.py), the slots run them (slot.py)."""
