"""Assembly as data: its listing with the places that instructions come from, and what became of spilled registers."""
