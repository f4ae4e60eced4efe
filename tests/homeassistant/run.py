#!/usr/bin/env python3
"""A real Home Assistant, without its page, against visiond and Mosquitto: entities appear, obey, change and go, and the blueprints work.

    VISIOND_BIN=target/debug/visiond PYTHON tests/homeassistant/run.py

PYTHON needs the packages of tests/homeassistant/requirements.txt:

    python3.11 -m venv /tmp/homeassistant
    /tmp/homeassistant/bin/pip install -r tests/homeassistant/requirements.txt

Without them, or without mosquitto, it says so and skips. Exit status 1 if something is wrong.
"""

import asyncio
import contextlib
import json
import logging
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("VISIOND_BIN", ROOT / "target/debug/visiond"))
MOSQUITTO = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
# A hang, not slowness: nothing else is decided by it.
HANG_S = 180

try:
    from homeassistant import bootstrap, config, config_entries, core, loader
    from homeassistant.const import __version__ as VERSION
    from homeassistant.helpers import device_registry, entity_registry
    from homeassistant.setup import async_setup_component
except ImportError as error:
    print(f"skipped: Home Assistant: {error}: install tests/homeassistant/requirements.txt")
    sys.exit(0)
if MOSQUITTO is None:
    print("skipped: Home Assistant: mosquitto is not installed: run tests/setup --test")
    sys.exit(0)

HOME_CONFIG = """
homeassistant:
  name: Test
  unit_system: metric
  time_zone: UTC
http:
  server_host: 127.0.0.1
  server_port: {port}
automation:
  - alias: notified
    use_blueprint:
      path: visiond/notify.yaml
      input:
        sensor: binary_sensor.gate_door_occupancy_of_here
        snapshot: camera.gate_door_snapshot
        notify: notify.phone
        pause: 0
  - alias: armed
    use_blueprint:
      path: visiond/armed.yaml
      input:
        people: person.anna
        switches: [switch.gate_yard_enabled, switch.gate_door_enabled_here]
        away: 0
"""

# What the camera door has, in its order here.
DOOR = [
    "binary_sensor.gate_door_occupancy",
    "sensor.gate_door_detections",
    "sensor.gate_door_count_of_person",
    "sensor.gate_door_frame_rate",
    "sensor.gate_door_crossings_of_middle_to_left",
    "sensor.gate_door_crossings_of_middle_to_right",
    "event.gate_door_crossing_of_middle",
    "binary_sensor.gate_door_occupancy_of_here",
    "sensor.gate_door_objects_in_here",
    "camera.gate_door_snapshot",
    "switch.gate_door_enabled",
    "number.gate_door_score_threshold",
    "switch.gate_door_enabled_middle",
    "number.gate_door_least_score_of_middle",
    "button.gate_door_reset_totals_of_middle",
    "switch.gate_door_enabled_here",
    "number.gate_door_least_score_of_here",
    "button.gate_door_reset_totals_of_here",
]

# What the model is that is a bundle, in a device of its own.
UPDATE = "update.gate_model_objects"

ZONE = '[[camera.zone]]\nname = "here"\nhold = "10 s"\n'


def film(folder):
    """Films a person who walks to the left and back, in four seconds."""
    path = folder / "walk.mkv"
    move = "pad=1472:512:480:0:gray,crop=960:512:'480*(1-abs(1-t/2))':0,fps=10"
    picture = ROOT / "tests/media/astronaut.png"
    subprocess.run(
        ["ffmpeg", "-v", "error", "-framerate", "10", "-loop", "1", "-t", "4", "-i", picture, "-vf", move, "-c:v", "ffv1", path],
        check=True,
    )
    return path


def install(folder):
    """Makes a bundle of the sample model, and installs it."""

    def bundle(*args):
        subprocess.run([BINARY, "bundle", *args], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    model = ROOT / "config/models/nanodet-g-416.onnx"
    bundle("keys", "team", "--no-password")
    bundle("make", model, "--name", "street", "--version", "1", "-o", "street.visiond")
    bundle("sign", "street.visiond", "--key", "team.key")
    bundle("install", "street.visiond", "--key", "team.pub", "--store", "models")


def visiond_config(folder, port, zone=ZONE, model=None):
    return f"""
[device]
name = "gate"
[engine]
backend = "rten"
[[model]]
name = "objects"
{model or 'bundle = "street"'}
score_threshold = 0.3
[bundles]
directory = "{folder}/models"
[[camera]]
name = "door"
source = {{ type = "video", url = "{folder}/walk.mkv", repeat = true }}
[camera.track]
classes = ["person"]
[[camera.line]]
name = "middle"
points = [[0.5, 0.0], [0.5, 1.0]]
{zone}
[[camera]]
name = "yard"
max_fps = 1
source = {{ type = "pattern", width = 128, height = 64, fps = 2 }}
[[sink]]
type = "mqtt"
url = "mqtt://127.0.0.1:{port}"
commands = true
home_assistant = true
count_labels = ["person"]
snapshot_interval = "1s"
state_interval = "250ms"
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def until(what, ready, show=lambda: ""):
    """Waits until `ready` returns something true, and returns it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + HANG_S
    while not (found := ready()):
        assert loop.time() < end, f"{what}: still not after {HANG_S} s\n{show()}"
        await asyncio.sleep(0.05)
    print(f"ok: {what}", flush=True)
    return found


class Errors(logging.Handler):
    """Collects what Home Assistant's MQTT and automations complain about."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        if any(word in record.name for word in ("mqtt", "automation", "blueprint", "template", "script")):
            self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


async def home_assistant(folder, port):
    """Starts Home Assistant's core with automations, the blueprints and the MQTT integration; without its page, which is a package of its own."""
    home = folder / "home"
    blueprints = home / "blueprints/automation/visiond"
    blueprints.mkdir(parents=True)
    for blueprint in (ROOT / "config/homeassistant").glob("*.yaml"):
        shutil.copy(blueprint, blueprints)
    (home / "configuration.yaml").write_text(HOME_CONFIG.format(port=free_port()))
    (home / ".storage").mkdir()
    entry = {
        "entry_id": "mqtt",
        "version": 1,
        "minor_version": 1,
        "domain": "mqtt",
        "title": "broker",
        "data": {"broker": "127.0.0.1", "port": port, "discovery": True},
        "options": {},
        "pref_disable_new_entities": False,
        "pref_disable_polling": False,
        "source": "user",
        "unique_id": None,
        "disabled_by": None,
    }
    entries = {"version": 1, "minor_version": 1, "key": "core.config_entries", "data": {"entries": [entry]}}
    (home / ".storage/core.config_entries").write_text(json.dumps(entries))
    hass = core.HomeAssistant(str(home))
    hass.config.skip_pip = True
    loader.async_setup(hass)
    settings = await config.async_hass_config_yaml(hass)
    hass.config_entries = config_entries.ConfigEntries(hass, settings)
    await bootstrap.async_load_base_functionality(hass)
    await config.async_process_ha_core_config(hass, settings["homeassistant"])
    for component in ("homeassistant", "http", "automation", "mqtt"):
        assert await async_setup_component(hass, component, settings), component
    await hass.async_start()
    assert hass.config_entries.async_entries("mqtt")[0].state is config_entries.ConfigEntryState.LOADED, "MQTT is set up"
    return hass


async def check(folder, port, reload):
    complaints = Errors()
    logging.getLogger().addHandler(complaints)
    hass = await home_assistant(folder, port)
    print(f"Home Assistant {VERSION}", flush=True)

    def state(entity):
        found = hass.states.get(entity)
        return found.state if found else None

    def show():
        return "\n".join(sorted(f"{one.entity_id} {one.state}" for one in hass.states.async_all()) + complaints.lines)

    async def call(domain, service, entity, **data):
        await hass.services.async_call(domain, service, {"entity_id": entity, **data}, blocking=True)

    notified = []
    hass.services.async_register("notify", "phone", lambda call: notified.append(dict(call.data)))

    await until("all entities of the camera", lambda: all(state(entity) is not None for entity in DOOR), show)
    registry = entity_registry.async_get(hass)
    device = device_registry.async_get(hass).async_get(registry.async_get(DOOR[0]).device_id)
    ours = entity_registry.async_entries_for_device(registry, device.id)
    assert sorted(one.entity_id for one in ours) == sorted(DOOR), [one.entity_id for one in ours]
    assert (device.manufacturer, device.name) == ("visiond", "gate door"), device
    await until("a person", lambda: state("sensor.gate_door_count_of_person") == "1", show)
    await until("the zone is occupied", lambda: state("binary_sensor.gate_door_occupancy_of_here") == "on", show)
    notified.clear()
    await call("switch", "turn_off", "switch.gate_door_enabled_here")
    await until("the zone is off", lambda: state("switch.gate_door_enabled_here") == "off", show)
    await until("nobody is in it", lambda: state("binary_sensor.gate_door_occupancy_of_here") == "off", show)
    assert not notified, notified
    await call("switch", "turn_on", "switch.gate_door_enabled_here")
    await until("a notification by the blueprint", lambda: notified, show)
    assert notified[0]["data"]["image"] == "/api/camera_proxy/camera.gate_door_snapshot", notified
    await until("crossings", lambda: int(float(state("sensor.gate_door_crossings_of_middle_to_left") or 0)) > 0, show)

    await call("switch", "turn_off", "switch.gate_door_enabled")
    await until("the camera is off", lambda: state("switch.gate_door_enabled") == "off", show)
    await until("its sensors are unavailable", lambda: state("sensor.gate_door_detections") == "unavailable", show)
    assert state("switch.gate_yard_enabled") == "on" and state("switch.gate_door_enabled_here") == "on", show()
    await call("switch", "turn_on", "switch.gate_door_enabled")
    await until("the camera is on", lambda: state("switch.gate_door_enabled") == "on", show)
    await until("its sensors are back", lambda: state("sensor.gate_door_count_of_person") == "1", show)

    await call("number", "set_value", "number.gate_door_score_threshold", value=1)
    await until("a threshold of 1", lambda: float(state("number.gate_door_score_threshold")) == 1, show)
    await until("no detection", lambda: state("sensor.gate_door_detections") == "0", show)
    await call("number", "set_value", "number.gate_door_score_threshold", value=0.25)
    await call("number", "set_value", "number.gate_door_least_score_of_here", value=0.35)
    await until("the scores", lambda: (state("number.gate_door_score_threshold"), state("number.gate_door_least_score_of_here")) == ("0.25", "0.35"), show)

    await call("switch", "turn_off", "switch.gate_door_enabled_middle")
    await until("the line is off", lambda: state("switch.gate_door_enabled_middle") == "off", show)
    await call("button", "press", "button.gate_door_reset_totals_of_middle")
    await until("totals of 0", lambda: state("sensor.gate_door_crossings_of_middle_to_left") == "0", show)

    switches = ["switch.gate_yard_enabled", "switch.gate_door_enabled_here"]
    for where, wanted in (("home", "off"), ("not_home", "on"), ("home", "off")):
        hass.states.async_set("person.anna", "unknown")
        await hass.async_block_till_done()
        hass.states.async_set("person.anna", where)
        await until(f"{where}: switches are {wanted}", lambda: {state(one) for one in switches} == {wanted}, show)

    def update(*names):
        found = hass.states.get(UPDATE)
        return found and (found.state, *(found.attributes[name] for name in names))

    assert update("installed_version", "latest_version", "title") == ("off", "1", "1", "street"), show()
    rollout = folder / "models/street/rollout.toml"
    text = 'source = "https://models.example.org"\nstep = "{}"\nversion = 2\nnewest = 2\nsince_unix_s = 1\n{}\n'
    rollout.write_text(text.format("fetching", "percent = 40"))
    await until("a newer version", lambda: update("installed_version", "latest_version") == ("on", "1", "2"), show)
    rollout.write_text(text.format("refused", 'reason = "it is slow"'))
    await until("the reason", lambda: update("latest_version", "release_summary") == ("on", "2", "it is slow"), show)
    assert not update("supported_features")[1], "visiond cannot install"
    device = device_registry.async_get(hass).async_get(registry.async_get(UPDATE).device_id)
    assert (device.manufacturer, device.name) == ("visiond", "gate"), device

    reload(visiond_config(folder, port, zone=""))
    gone = [entity for entity in DOOR if entity.endswith("_here")]
    await until("the entities of a zone go", lambda: all(state(entity) is None for entity in gone), show)
    assert all(state(entity) is not None for entity in DOOR if entity not in gone), show()
    reload(visiond_config(folder, port, model=f'path = "{ROOT}/config/models/nanodet-g-416.onnx"'))
    await until("the entity of the bundle goes", lambda: state(UPDATE) is None, show)
    reload(visiond_config(folder, port).replace("commands = true\n", ""))
    commands = [entity for entity in DOOR if entity.split(".")[0] in ("switch", "number", "button")]
    await until("the entities of commands go", lambda: all(state(entity) is None for entity in commands), show)
    reload(visiond_config(folder, port).replace("home_assistant = true\n", ""))
    await until("all entities go", lambda: all(state(entity) is None for entity in [*DOOR, UPDATE]), show)
    # The state of a camera that goes is cleared by an empty message, which has no JSON.
    wrong = [line for line in complaints.lines if "'value_json' is undefined" not in line]
    assert not wrong, "\n".join(wrong)
    await hass.async_stop(force=True)


def main():
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        film(folder)
        install(folder)
        port = free_port()
        (folder / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        processes = []

        def end():
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
                process.wait()

        stack.callback(end)
        log = stack.enter_context(open(folder / "log", "w+"))
        processes.append(subprocess.Popen([MOSQUITTO, "-c", folder / "mosquitto.conf"], stdout=log, stderr=log))
        file = folder / "visiond.toml"
        file.write_text(visiond_config(folder, port))
        visiond = subprocess.Popen([BINARY, "run", file], stdout=log, stderr=log)
        processes.append(visiond)

        def reload(text):
            file.write_text(text)
            visiond.send_signal(signal.SIGHUP)

        # Home Assistant's client of the broker still runs when a check fails.
        threading.excepthook = lambda _: None
        try:
            asyncio.run(check(folder, port, reload))
        except BaseException:
            print((folder / "log").read_text()[-8000:], file=sys.stderr)
            traceback.print_exc()
            return 1
        assert visiond.poll() is None, "visiond still runs"
    print("Home Assistant: all is well")
    return 0


sys.exit(main())
