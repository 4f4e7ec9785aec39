"""What is refused or said of a kernel that is complete: races, ends of ranges, narrow indices."""
