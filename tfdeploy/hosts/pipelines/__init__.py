"""Requests that are sent before the answers to earlier ones have arrived, and rounds of them."""
