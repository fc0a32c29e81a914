"""HTML pages that hold everything in themselves: they open from disk, without a network."""
