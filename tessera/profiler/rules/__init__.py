"""Rules from a recording to hints, by what they look at: tiles, data, what lies between calls."""
