"""What people would be shown of the reference model: to compare with what the API shows of the real one."""

from collections import Counter

from tests.property.reference_model import ACTIVE, DONE, Reference, Thing, done, live


def picture(model: Reference) -> Thing:
    """As `picture` of scheduler_model.py makes it of the real one."""
    tasks = [task for job in model.jobs.values() for task in job["tasks"]]
    return {
        "queue": model.suspended,
        "jid": model.jid,
        "jobs": {
            job["id"]: (
                job["state"], job["priority"], job["lastfailed"],
                sum(task["state"] not in DONE for task in job["tasks"]), job["resumed"],
            )
            for job in model.jobs.values()
        },
        "tasks": {
            task["id"]: (
                task["state"], task["generation"],
                task["wanted"] if task["ranks"] is None else len(task["ranks"]),
                task["wanted"] if task["ranks"] is None else len(task["ranks"]) - done(task),
                task["preparing"], task["finishing"],
            )
            for task in tasks
        },
        "work": {
            unit["id"]: (
                unit["state"], unit["attempt"], unit["client"], unit["failed"], unit["lost"],
                max(unit["due"] - model.now, 0.0), unit["how"],
            )
            for task in tasks for unit in live(task)
        },
        "clients": {
            client["id"]: (
                _status(client), sorted(client["holds"]), sorted(client["skip"]),
                bool(client["suspended"]), client["suspended"],
                client["checkouts"], client["completed"], client["failed"], len(client["blamed"]),
            )
            for client in model.clients.values()
        },
    }  # fmt: skip


def counts(model: Reference) -> dict[str, dict[str, int]]:
    """`GET /queue?json`, by counting."""
    jobs = [job for job in model.jobs.values() if job["state"] in ACTIVE or job["state"] == "suspend"]
    tasks = [task for job in jobs for task in job["tasks"]]
    open_units = [
        (task, unit)
        for task in tasks if task["ranks"] is not None and task["state"] not in DONE
        for unit in task["ranks"].values() if unit["state"] != "completed"
    ]  # fmt: skip
    checkout = sum(unit["state"] == "checkout" for _, unit in open_units)
    halted = sum(task["state"] == "suspend" for task, _ in open_units)
    status = Counter(_status(client) for client in model.clients.values())
    states = Counter(task["state"] for task in tasks)
    return {
        "jobs": {
            "total": len(jobs),
            "active": sum(job["state"] in ACTIVE for job in jobs),
            "suspended": sum(job["state"] == "suspend" for job in jobs),
        },
        "tasks": {
            "total": len(tasks), "queuing": states["queued"], "in-progress": states["in-progress"],
            "pending": states["pending"], "completed": states["completed"],
            "suspended": states["suspend"], "failed": states["skipped"] + states["failed-permanent"],
        },
        "workunits": {
            "total": len(open_units), "queuing": len(open_units) - checkout - halted,
            "checkout": checkout, "suspended": halted,
        },
        "clients": {
            "total": len(model.clients) - status["offline"], "busy": status["active-busy"],
            "idle": status["active-idle"], "suspended": status["suspend"], "offline": status["offline"],
        },
    }  # fmt: skip


def _status(client: Thing) -> str:
    if client["offline"]:
        return "offline"
    if client["suspended"]:
        return "suspend"
    return "active-busy" if client["holds"] else "active-idle"
