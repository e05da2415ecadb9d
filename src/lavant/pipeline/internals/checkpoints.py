"""A file system for Spark's checkpoints that sets permissions itself.

Hadoop's local file system starts a process, `chmod`, for every file that it creates, unless Hadoop's native library is
installed, which PyPI's package lacks. A micro-batch creates two files. So the checkpoint of a stream, a temporary
directory of the driver, is at a scheme of its own, whose file system is Hadoop's with another `setPermission`.

Private:

* `SparkContext._jvm`: Janino, the compiler with which Spark compiles its own generated code, compiles the class.
* Hadoop's `FileSystem.get` keeps what it opened first for a scheme, so neither Spark's configuration nor its class
  loader has to know the class. `RawLocalFileSystem` calls its own `setPermission`.

Known on PySpark 4.2 and 4.3. Where it does not work, the checkpoint is at `file:`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import SparkContext

from lavant.pipeline.internals.java import SPARK_ERRORS

SCHEME = "lavant-local"
CLASS = "LavantLocalFileSystem"
SOURCE = f"""
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

public class {CLASS} extends org.apache.hadoop.fs.RawLocalFileSystem {{
  public java.net.URI getUri() {{
    return java.net.URI.create("{SCHEME}:///");
  }}
  public void setPermission(Path path, FsPermission permission) throws java.io.IOException {{
    Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
  }}
}}
"""


def checkpoint_uri(context: SparkContext, directory: Path) -> str:
    """The URI of a local directory for a checkpoint; not escaped, since Hadoop does not unescape it."""
    try:
        _register(context)
    except SPARK_ERRORS:
        return f"file://{directory}"
    return f"{SCHEME}://{directory}"


def _register(context: SparkContext) -> None:
    """Have Hadoop open the file system, once for each Java process; later calls find it open."""
    jvm: Any = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE)
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    configuration.setClassLoader(compiler.getClassLoader())
    configuration.set(f"fs.{SCHEME}.impl", CLASS)
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(f"{SCHEME}:///"), configuration)
