"""Turn an Inventory into a Plan (which task runs where), and a Plan into Launches. Pure."""
