"""What an editor may ask of a file, without any protocol."""
