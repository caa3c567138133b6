"""One tile of a head per program, four warps.

quick: true
launch: {BV: 128, num_warps: 4}
base: incumbent
"""
