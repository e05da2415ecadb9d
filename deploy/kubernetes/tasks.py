"""What the workers of this example do; put your own functions here, or into an image of your own."""

import lavant


@lavant.task("resize")
def resize(task: lavant.Task) -> bytes:
    return task.input[:1000]
