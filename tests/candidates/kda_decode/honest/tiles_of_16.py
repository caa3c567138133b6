"""Smaller tiles, by a launch option.

launch: {BV: 16}
base: incumbent
"""
