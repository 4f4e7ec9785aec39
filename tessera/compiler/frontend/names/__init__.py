"""What names, annotations and imports mean."""
