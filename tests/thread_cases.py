"""Run a function in several threads."""

import threading


def run_in_threads(work, count=8):
    """Start all threads at the same time. Raise the first error."""
    errors, barrier = [], threading.Barrier(count)

    def guarded(number):
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
