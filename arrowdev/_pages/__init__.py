"""HTML pages that need nothing beside them: their parts, and the page of a trace."""
