"""Progress of transfers: drawn in place on a terminal, else a line every few seconds."""
