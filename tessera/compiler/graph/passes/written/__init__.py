"""What people write out in simple operators, recognised as the operator that it is."""
