"""Tests the list of hosts: Ansible's inventory is parsed, and every problem is reported with its line."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.engine import Ask
from rung.jobs.model.errors import InventoryError
from rung.jobs.model.host import Host
from rung.runner.hosts.host_list import default_list, find_hosts, parse_hosts

Rung = Callable[..., Any]


def read(text: str) -> dict[str, Host]:
    return {host.name: host for host in parse_hosts(textwrap.dedent(text).encode())}


def problems(text: str) -> list[str]:
    with pytest.raises(InventoryError) as raised:
        parse_hosts(text.encode())
    return raised.value.problems


# Valid lists


def test_every_setting_of_a_host_is_read() -> None:
    hosts = read("""
        all:
          hosts:
            titan1:
              ansible_host: 192.0.2.11
              ansible_user: trainer
              ansible_port: 2222
              ansible_ssh_private_key_file: ~/.ssh/lab
              rung_jump: gate
              rung_known_hosts: /etc/rung/known_hosts
              rung_engine_socket: /run/user/1000/docker.sock
            gate:
        """)
    assert hosts["titan1"] == Host(
        "titan1",
        "192.0.2.11",
        "trainer",
        2222,
        "~/.ssh/lab",
        "gate",
        "/etc/rung/known_hosts",
        "/run/user/1000/docker.sock",
    )
    assert hosts["gate"] == Host("gate", "gate")


def test_hosts_with_the_same_shared_folder_know_each_other() -> None:
    hosts = read("""
        all:
          hosts:
            a: {rung_shared: /srv/rung/, rung_address: 10.0.0.1}
            b: {rung_shared: /srv/rung}
            c: {rung_shared: /srv/other}
            d:
        """)
    assert {name: (host.shared, host.shares_with) for name, host in hosts.items()} == {
        "a": ("/srv/rung", ("b",)),
        "b": ("/srv/rung", ("a",)),
        "c": ("/srv/other", ()),
        "d": ("", ()),
    }
    assert hosts["a"].address_for_hosts == "10.0.0.1" and hosts["b"].address_for_hosts is None
    able = [name for name, host in hosts.items() if Ask.NODES in host.can_do]
    assert able == ["a", "b"]


@pytest.mark.parametrize("folder", ["srv", "~/rung", "/srv/../etc", "/", "3"])
def test_a_shared_folder_that_cannot_be_one_is_refused(folder: str) -> None:
    (problem,) = problems(f"all:\n  hosts:\n    a: {{rung_shared: {folder}}}\n")
    assert problem.startswith("3: rung_shared: should be a folder that begins with /")


def test_a_site_has_no_shared_folder_beside_its_own() -> None:
    (problem,) = problems("all:\n  hosts:\n    a: {rung_engine: slurm, rung_shared: /srv/rung}\n")
    assert problem == "3: rung_shared: a site of Slurm has its folder in rung_slurm"


def test_hosts_inherit_the_variables_of_their_groups_and_the_nearest_wins() -> None:
    hosts = read("""
        all:
          vars: {ansible_user: everyone, ansible_port: 1, nvidia_driver: 580}
          children:
            gpus:
              vars: {ansible_port: 2, ansible_user: gpus}
              children:
                a100:
                  vars: {ansible_port: 3}
                  hosts: {far: , near: {ansible_port: 4}}
            rack:
              hosts: {near: {ansible_user: own}}
          hosts: {bare: }
        """)
    assert (hosts["far"].user, hosts["far"].port, hosts["far"].groups) == ("gpus", 3, ("a100", "gpus"))
    assert (hosts["near"].user, hosts["near"].port, hosts["near"].groups) == ("own", 4, ("a100", "gpus", "rack"))
    assert (hosts["bare"].user, hosts["bare"].port, hosts["bare"].groups) == ("everyone", 1, ())


def test_of_two_groups_equally_near_the_later_by_name_wins() -> None:
    hosts = read("""
        b: {vars: {ansible_user: b}, hosts: {x: }}
        a: {vars: {ansible_user: a}, hosts: {x: }}
        """)
    assert hosts["x"].user == "b"


def test_a_group_can_be_named_in_one_place_and_defined_in_another() -> None:
    hosts = read("""
        all:
          children:
            gpus: {children: {p100: , a100: }}
        p100: {hosts: {pascal1: }}
        gpus: {vars: {ansible_user: trainer}}
        """)
    assert (hosts["pascal1"].user, hosts["pascal1"].groups) == ("trainer", ("gpus", "p100"))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("gpu[1:3]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[08:10].lab", ["gpu08.lab", "gpu09.lab", "gpu10.lab"]),
        ("r[a:c]", ["ra", "rb", "rc"]),
        ("r[a:b]n[1:5:2]", ["ran1", "ran3", "ran5", "rbn1", "rbn3", "rbn5"]),
    ],
)
def test_a_range_means_many_hosts(pattern: str, names: list[str]) -> None:
    assert list(read(f"all: {{hosts: {{'{pattern}': {{ansible_user: u}}}}}}")) == names


def test_a_port_can_follow_the_name() -> None:
    assert read("all: {hosts: {'box:2222': , 'n[1:2]:22': }}") == {
        "box": Host("box", "box", port=2222),
        "n1": Host("n1", "n1", port=22),
        "n2": Host("n2", "n2", port=22),
    }


@pytest.mark.parametrize(
    ("arguments", "jump", "known"),
    [
        ("-J gate", "gate", None),
        ("-Jme@gate:22", "me@gate:22", None),
        ("-o ProxyJump=gate,inner", "gate,inner", None),
        ("-oProxyJump=gate -o UserKnownHostsFile=/keys", "gate", "/keys"),
        ("-o 'ProxyJump gate' -q -C", "gate", None),
        ("-o ControlMaster=auto -o ServerAliveInterval=5", None, None),
        ("-o StrictHostKeyChecking=yes", None, None),
        ("-o ProxyJump=none", None, None),
        ("", None, None),
    ],
)
def test_the_jump_host_can_be_in_the_options_of_ssh(arguments: str, jump: str | None, known: str | None) -> None:
    host = read(f'all: {{hosts: {{x: {{ansible_ssh_common_args: "{arguments}"}}}}}}')["x"]
    assert (host.jump, host.known_hosts) == (jump, known)


def test_variables_only_for_ansible_are_ignored() -> None:
    hosts = read("""
        all:
          vars:
            ansible_python_interpreter: /usr/bin/python3
            ansible_become: true
            ansible_become_password: "{{ vault }}"
            ansible_connection: ssh
            docker_version: 27
            nested: {a: [1, 2]}
          hosts:
            x: {ansible_ssh_host: 192.0.2.1, ansible_ssh_user: u, ansible_ssh_port: "22"}
            localhost: {ansible_connection: local}
        """)
    assert hosts == {"x": Host("x", "192.0.2.1", "u", 22)}


# Wrong lists


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty; a list of hosts starts with all:"),
        ("[all]\nx\n", 2, "is not YAML"),
        ("- x\n", 1, "a list of hosts is a mapping that starts with all:"),
        ("all:\n  host: {x: }\n", 2, "all.host: unknown key; did you mean 'hosts'?"),
        ("all:\n  hosts: [x]\n", 2, "all.hosts: should be a mapping"),
        ("all:\n  hosts:\n    x: 22\n", 3, "all.hosts.x: should be a mapping"),
        ("all:\n  vars: u\n", 2, "all.vars: should be a mapping"),
        ("all: 3\n", 1, "all: should be a mapping"),
        ("all:\n  vars: {ansible_password: x}\n  hosts: {x: }\n", 2, "ansible_password: Rung logs in only with keys"),
        ("all:\n  hosts:\n    -x: \n", 3, "host -x: the name must be one word"),
        ("all:\n  hosts:\n    'x y': \n", 3, "host x y: the name must be one word"),
        ("all:\n  hosts:\n    x: {rung_jump: y}\n    y: {rung_jump: x}\n", 3, "host x would be its own jump host"),
        ("all:\n  children:\n    a: {children: {b: }}\n    b: {children: {a: }}\n", 4, "group a is inside itself"),
        ("all:\n  children:\n    all: \n", 3, "group all is inside itself"),
        ("all:\n  hosts:\n    x[3:1]: \n", 3, "names no host"),
        ("all:\n  hosts:\n    x[1:2000]: \n", 3, "more than 1000 hosts"),
        ("all:\n  hosts:\n    x[1:999999999]: \n", 3, "more than 1000 hosts"),
        (f"all:\n  hosts:\n    '{'[1:2]' * 40}': \n", 3, "more than 1000 hosts"),
        (f"all:\n  hosts:\n    '{'[1:2]' * 40}[2:1]': \n", 3, "names no host"),
        (f"all:\n  hosts:\n    '{'[1:1]' * 100}': \n", 3, "names no host"),
        ("".join(f"g{n}: \n" for n in range(600)), 500, "more than 500 groups"),
        ("all:\n  hosts:\n    x: \n    x: \n", 4, "all.hosts.x: given twice"),
        ("a: &a\n  children: {b: *a}\n", 1, "aliases count each time"),
    ],
)
def test_a_wrong_list_is_refused_with_the_line_and_the_problem(text: str, line: int, message: str) -> None:
    raised = problems(text)
    assert any(problem.startswith(f"{line}: ") and message in problem for problem in raised), raised


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ansible_hots: y", "ansible_hots: unknown variable; did you mean 'ansible_host'?"),
        ("rung_jmp: y", "rung_jmp: unknown variable; did you mean 'rung_jump'?"),
        ("rung_zzz: y", "rung_zzz: unknown variable; known: rung_jump, rung_known_hosts, rung_engine_socket"),
        ("rung_registries: registry.example.org", "should be a list of registries"),
        ("rung_registries: ['https://registry.example.org']", "should be a list of registries"),
        ("ansible_port: 0", "ansible_port: should be a number from 1 to 65535 (got '0')"),
        ("ansible_port: 2e9", "ansible_port: should be a number from 1 to 65535"),
        ("ansible_port: yes", "ansible_port: should be a number from 1 to 65535"),
        ("ansible_user: a b", "ansible_user: should be one plain word (got 'a b')"),
        ("ansible_user: 7", "ansible_user: should be one plain word"),
        ("ansible_host: -oProxyCommand=x", "ansible_host: should be one plain word"),
        ("ansible_host: '{{ ip }}'", "ansible_host: should be one plain word"),
        ("ansible_ssh_private_key_file: key", "should be a path that begins with / or ~/"),
        ("rung_engine_socket: ~/d.sock", "should be a path that begins with /"),
        ("rung_jump: x", "host x would be its own jump host"),
        ("ansible_connection: winrm", "Rung reaches hosts only by ssh"),
        ("ansible_ssh_common_args: -i key", "-i: Rung reads only -J and -o here"),
        ("ansible_ssh_common_args: '-J \"'", "No closing quotation"),
        ("ansible_ssh_common_args: -J", "proxyjump: cannot be read"),
        ("ansible_ssh_common_args: 3", "Rung reads only -J and -o"),
        ("ansible_ssh_common_args: -o ProxyCommand=nc", "name the jump host with ProxyJump"),
        ("ansible_ssh_common_args: -o StrictHostKeyChecking=no", "Rung never accepts an unknown host key"),
    ],
)
def test_a_wrong_setting_of_a_host_is_refused_with_its_line(setting: str, message: str) -> None:
    (raised,) = problems(f"all:\n  hosts:\n    x: {{{setting}}}\n")
    assert raised.startswith("3: ") and message in raised


def test_all_problems_are_reported_at_once() -> None:
    raised = problems("all:\n  hosst: \n  hosts:\n    x: {ansible_port: 0, ansible_user: a b}\n")
    assert [problem.split(":")[0] for problem in raised] == ["2", "4", "4"]


def test_a_group_with_very_many_paths_to_its_parents_is_read_fast() -> None:
    """Each level has two groups that are both in each group of the level above: the paths double each time."""
    text = "".join(f"{a}{n}: {{children: {{a{n + 1}: , b{n + 1}: }}}}\n" for n in range(100) for a in "ab")
    assert len(read(text + "a100: {hosts: {x: }}\n")["x"].groups) == 201


WORDS = ("all", "hosts", "children", "vars", "x[1:3]", "ansible_host", "ansible_ssh_common_args", "rung_jump")
SCALARS = st.none() | st.text(max_size=8) | st.integers()


@given(st.recursive(SCALARS, lambda inner: st.dictionaries(st.sampled_from(WORDS), inner, max_size=4), max_leaves=20))
@settings(max_examples=200, deadline=None)
def test_no_input_crashes_the_reader(data: Any) -> None:
    try:
        hosts = parse_hosts(yaml.safe_dump(data).encode())
    except InventoryError as error:
        assert error.problems and all(problem.split(":")[0].isdecimal() for problem in error.problems)
    else:
        assert all(isinstance(host, Host) for host in hosts)


# The file of the list


def test_the_shipped_list_has_the_groups_and_no_host() -> None:
    assert find_hosts({}) == []
    text = default_list({}).read_text(encoding="utf-8")
    assert all(f"    {group}:\n" in text for group in ("titanrtx", "p100", "a100"))


def test_the_example_in_the_shipped_list_is_valid() -> None:
    lines = default_list({}).read_text(encoding="utf-8").splitlines()
    start = lines.index("all:")
    text = "\n".join(line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line for line in lines[start:])
    hosts = read(text)
    assert set(hosts) == {"titan1", "pascal1", "ampere1", "ampere2", "ampere3", "ampere4"}
    assert hosts["pascal1"].jump == "titan1" and hosts["ampere4"].should_have("A100")
    assert {host.user for host in hosts.values()} == {"trainer"}


def test_the_examples_in_the_docs_are_valid() -> None:
    page = (default_list({}).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    first, second = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if block.startswith("all:")]
    together = read(second)
    assert together["ampere1"].shares_with == ("ampere2",) and together["ampere2"].address_for_hosts == "10.0.0.2"
    hosts = read(first)
    assert set(hosts) == {"titan1", "titan2", "ampere1"}
    assert (hosts["ampere1"].user, hosts["ampere1"].port, hosts["ampere1"].jump) == ("trainer", 2222, "titan1")


def test_another_list_can_be_used_and_its_problems_show_its_path(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("all: {hosts: {titan1: }}\n")
    assert [host.name for host in find_hosts({"RUNG_HOSTS": str(file)})] == ["titan1"]
    file.write_text("all: 1\n")
    with pytest.raises(InventoryError, match=f"^{file}:1: all: should be a mapping"):
        find_hosts({"RUNG_HOSTS": str(file)})
    with pytest.raises(InventoryError, match="cannot be read: No such file or directory; RUNG_HOSTS names the list"):
        find_hosts({"RUNG_HOSTS": str(tmp_path / "none")})
    with pytest.raises(InventoryError, match="cannot be read: Is a directory"):
        find_hosts({"RUNG_HOSTS": str(tmp_path)})


def test_a_wrong_list_is_reported_by_the_commands_in_lines(tmp_path: Path, rung: Rung) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("all:\n  host: \n  hosts: [x]\n")
    ran = rung("hosts", env={"RUNG_HOSTS": str(file)})
    assert (ran.code, ran.out) == (2, "")
    assert [line.split(": ")[1] for line in ran.err.splitlines()] == [f"{file}:2", f"{file}:3"]
    checked = rung("check", env={"RUNG_HOSTS": str(file)})
    assert checked.code == 1
    assert f"BAD {file}:2: all.host: unknown key" in checked.out
