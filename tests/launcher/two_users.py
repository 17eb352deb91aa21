"""Two unprivileged users of one machine attack each other's run: each reads what it can, takes the lock, sends signals, and once
makes the other's folder of snapshots in memory before the other does. Both runs lose a rank, start again and must end with the
bits of a run that nobody disturbs. Needs root, which makes the users' processes; else it ends with 77.

  two_users.py LOCKSTEP PROGRAM        PROGRAM: saving_memory_restart
"""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LOCKSTEP, PROGRAM = sys.argv[1:3]
USERS = (61001, 61002)
MEMORY = pathlib.Path("/dev/shm")
LIMIT = 150  # seconds; a job that is held ends here


def become(user):
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def memory_of(user):
    return MEMORY / f"lockstep.memory-{user}"


class Attack:
    """What one user does to another while its file `go` exists. Each attack that succeeds is a line of its report."""

    def __init__(self, victim, folder, temporary):
        self.victim, self.folder, self.temporary = victim, folder, temporary
        self.tried = {"files": 0, "processes": 0, "locks": 0}
        self.found = set()
        self.locks = []  # held to the end

    def is_theirs(self, path):
        try:
            return path.lstat().st_uid == self.victim
        except OSError:
            return False

    def read(self, path, kind):
        self.tried[kind] += 1
        try:
            with open(path, "rb") as file:
                if file.read(1):
                    self.found.add(f"reads {re.sub('[0-9]+', 'N', str(path))}")
        except OSError:
            pass

    def look_into(self, top):
        for folder, folders, files in os.walk(top):
            for name in files:
                if self.is_theirs(path := pathlib.Path(folder, name)):
                    self.read(path, "files")
            for name in folders:
                path = pathlib.Path(folder, name)
                if self.is_theirs(path) and os.access(path, os.W_OK) and path != memory_of(os.getuid()):  # a trap of theirs
                    self.found.add(f"may write to {path}")

    def look_at_processes(self):
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            if not self.is_theirs(process):
                continue
            for name in ("mem", "environ", "maps"):
                self.read(process / name, "processes")
            try:
                for opened in (process / "fd").iterdir():
                    self.read(opened, "processes")
            except OSError:
                pass
            for number in (0, signal.SIGUSR1, signal.SIGKILL):
                try:
                    os.kill(int(process.name), number)
                    self.found.add(f"may send signal {number} to process {process.name}")
                except OSError:
                    pass

    def lock(self):
        """Held to the end, once it is free: between the attempts, if the rank that held it was killed."""
        try:
            file = open(self.folder / "run" / "lock", "rb")
            self.tried["locks"] += 1
            self.locks.append(file)
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            pass

    def run(self, go, report):
        while go.exists():
            self.look_into(MEMORY)
            self.look_into(self.temporary)
            self.look_at_processes()
            self.lock()
            time.sleep(0.05)
        text = "\n".join(sorted(self.found))
        report.write_text(f"{self.tried['files']} {self.tried['processes']} {self.tried['locks']}\n{text}\n")


def as_user(user, action):
    child = os.fork()
    if child == 0:
        try:
            become(user)
            action()
            os._exit(0)
        except BaseException as failure:
            print(f"user {user}: {failure!r}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def start(user, folder, rank):
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "LANG": "C",
                   "TMPDIR": str(folder.parent / "tmp")}
    return subprocess.Popen(
        [LOCKSTEP, "run", "-n", "2", "--no-tag", "--max-restarts", "1", "--timeout", str(LIMIT), "--", PROGRAM, str(folder),
         str(rank)], stdin=subprocess.DEVNULL, stdout=open(folder / "out", "w"), stderr=open(folder / "err", "w"), cwd=folder,
        env=environment, user=user, group=user, extra_groups=[], umask=0o022, start_new_session=True)


def new_folder(top, name, user):
    folder = top / name
    folder.mkdir()
    (folder / "memory").symlink_to(MEMORY)
    os.chown(folder, user, user)
    return folder


def last_line(folder):
    lines = (folder / "out").read_text().splitlines()
    assert lines and lines[-1].startswith("ended with "), f"{folder}: {lines}\n{(folder / 'err').read_text()}"
    return lines[-1]


def disturbed(top, name, is_squatted):
    """The texts of both jobs' output, which attack each other."""
    folders = {user: new_folder(top, f"{name}-{user}", user) for user in USERS}
    go = top / f"{name}.go"
    go.touch()
    reports = top / f"{name}.reports"
    reports.mkdir()
    reports.chmod(0o777)
    if is_squatted:
        for user, other in zip(USERS, reversed(USERS)):
            def squat(path=memory_of(user)):
                os.umask(0)
                path.mkdir(0o777)
            os.waitpid(as_user(other, squat), 0)
    attackers = [as_user(other, lambda a=Attack(user, folders[user], top / "tmp"), r=reports / str(user): a.run(go, r))
                 for user, other in zip(USERS, reversed(USERS))]
    jobs = {user: start(user, folders[user], rank) for rank, user in enumerate(USERS)}
    try:
        for user, job in jobs.items():
            assert job.wait(LIMIT + 60) == 0, f"{name}: the job of {user}: {(folders[user] / 'err').read_text()}"
    finally:
        for job in jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
        go.unlink()
        failed = [os.waitpid(attacker, 0)[1] for attacker in attackers]
    assert failed == [0, 0], f"{name}: an attacker failed"
    for user in USERS:
        counts, _, found = (reports / str(user)).read_text().partition("\n")
        files, processes, locks = map(int, counts.split())
        print(f"{name}: against user {user}: {files} reads of files, {processes} of processes, {locks} attempts at the lock")
        assert processes > 0 and locks > 0 and (files > 0 or is_squatted), counts
        assert not found.strip(), f"{name}: against user {user}:\n{found}"
    return folders


def clean():
    for user in USERS:
        shutil.rmtree(memory_of(user), ignore_errors=True)


def main():
    if os.geteuid() != 0:
        print("needs root, which may make processes of other users")
        return 77
    top = pathlib.Path(tempfile.mkdtemp(prefix="two-users-"))
    top.chmod(0o755)
    (top / "tmp").mkdir()
    (top / "tmp").chmod(0o1777)
    clean()
    try:
        can_run = as_user(USERS[0], lambda: subprocess.run([LOCKSTEP, "--version"], check=True, stdout=subprocess.DEVNULL))
        if os.waitpid(can_run, 0)[1] != 0:
            print("the build folder cannot be read by other users")
            return 77
        alone = new_folder(top, "alone", USERS[0])
        assert start(USERS[0], alone, -1).wait(LIMIT + 60) == 0, (alone / "err").read_text()
        wanted = last_line(alone)
        for name, is_squatted in (("watched", False), ("squatted", True)):
            for user, folder in disturbed(top, name, is_squatted).items():
                assert last_line(folder) == wanted, f"{name}: {user}: {last_line(folder)}, not {wanted}"
                began = [line for line in (folder / "out").read_text().splitlines() if line.startswith("began")]
                update = 10 if is_squatted else 20  # from the disk, or from memory
                assert began[-1] == f"began at update {update}", f"{name}: {user}: {began}"
                refused = f"belongs to user {USERS[1] if user == USERS[0] else USERS[0]}" in (folder / "err").read_text()
                assert refused == is_squatted, (folder / "err").read_text()
            clean()
    finally:
        clean()
        shutil.rmtree(top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
