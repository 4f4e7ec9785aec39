"""Instructions that multiply and add several numbers at once."""
