"""Every use of Spark beyond its public interface, and the versions it is known to work with."""
