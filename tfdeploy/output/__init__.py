"""What a person or a script sees: text, tables, progress, and the documents of --json."""
