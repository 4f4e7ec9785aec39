"""How the ceilings of a device are measured, one file per kind of device."""
