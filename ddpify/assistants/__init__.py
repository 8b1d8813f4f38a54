"""The commands as tools for coding assistants (Model Context Protocol)."""
