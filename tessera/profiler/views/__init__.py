"""What a profile looks like: pictures as markup, which answer to a pointer where scripts may run."""
