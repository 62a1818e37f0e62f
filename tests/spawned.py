"""A program for ranks: children that it spawns get a class and a function of its own, and give an instance back."""

SOURCE = """
__name__ = "__main__"
import multiprocessing

class Item:
    def __init__(self, value):
        self.value = value

def double(item, results):
    results.put(Item(2 * item.value))

def through(how):
    context = multiprocessing.get_context(how)
    results = context.Queue()
    child = context.Process(target=double, args=(Item(21), results))
    child.start()
    item = results.get(timeout=30)
    child.join()
    return type(item) is Item and item.value

[through(how) for how in ("spawn", "forkserver", "fork")]
"""
