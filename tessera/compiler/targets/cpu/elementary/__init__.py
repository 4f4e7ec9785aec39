"""Elementary functions as vector code: arithmetic, conversions, exp, sin, pow."""
