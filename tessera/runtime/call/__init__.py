"""From a Python call to a launch."""
