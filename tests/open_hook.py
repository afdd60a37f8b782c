"""An audit hook for the jobs of the smoke study: what do they open?"""

OPEN_HOOK = '''
"""Logs every file that a job opens for reading, but for those of Python and of the system."""
import json, os, sys

argv = sys.orig_argv
if "-m" in argv and argv[argv.index("-m") + 1].startswith("headroom.") and "--output" in argv:
    output = os.path.relpath(argv[argv.index("--output") + 1])
    root = os.getcwd() + os.sep
    system = tuple(
        os.path.realpath(folder) + os.sep
        for folder in (sys.prefix, sys.base_prefix, "/usr", "/etc", "/proc", "/sys", "/dev", "/tmp", "/run", "/var")
    ) + (os.path.expanduser("~/.cache/"), os.path.expanduser("~/.config/"), os.path.join(os.getcwd(), ".venv") + os.sep)
    system += ("/usr/", "/proc/", "/dev/", "/etc/")
    folder = os.path.join("results", output.split(os.sep)[1], "logs")
    os.makedirs(folder, exist_ok=True)
    log = os.open(os.path.join(folder, "opened.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    seen = set()

    def opened(event, arguments):
        if event != "open" or not isinstance(arguments[0], (str, bytes)):
            return
        if isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if path.endswith(".pyc"):  # what was compiled from it is what was read
            folder, name = os.path.split(path)
            path = os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")
        if path in seen or not os.path.isfile(path):  # a folder that is being removed, or nothing at all
            return
        seen.add(path)
        if path.startswith(root):
            name = path[len(root):]
        elif path.startswith(system):
            return
        else:
            name = path
        if not name.startswith(".venv" + os.sep):
            os.write(log, (json.dumps({"output": output, "path": name}) + "\\n").encode())

    sys.addaudithook(opened)
'''
"""A ``sitecustomize`` for the smoke study: test_undeclared_inputs.py reads what it logs."""
