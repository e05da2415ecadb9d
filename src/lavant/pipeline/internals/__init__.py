"""Everything that Lavant uses of Spark beyond its public interface."""
