"""Tests which step of the whole run a line belongs to, for each way that frameworks count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.line_reader import LineReader
from rung.recovery.logs.progress import ProgressTracker


class Follower:
    """Reads a log and returns the step of each line's loss."""

    def __init__(self):
        self.reader, self.track = LineReader(), ProgressTracker()

    def step(self, text):
        reading = self.reader.read(text)
        if reading is None:
            return None
        self.track.store(reading)
        return self.track.advance(reading)


def steps(*lines):
    follower = Follower()
    return [follower.step(line) for line in lines]


def test_epochs_counted_from_0_and_from_1_are_distinguished():
    assert steps("Epoch 0: 50%|█ | 5/10 [00:01<00:01, loss=1]", "Epoch 1: 10%|█ | 1/10 [00:01<00:01, loss=1]") == [
        5,
        11,
    ]
    assert steps("Epoch 1: 50%|█ | 5/10 [00:01<00:01, loss=1]", "Epoch 2: 10%|█ | 1/10 [00:01<00:01, loss=1]") == [
        5,
        11,
    ]


def test_the_first_step_of_a_resumed_run_shows_how_it_counts_epochs():
    bar = "Epoch 1: 10%|█ | 1/16 [00:01<00:01, loss=1]"
    assert steps("Restored all states from the checkpoint at /ckpt/epoch=0-step=16.ckpt", bar)[1] == 17
    assert steps("Resuming training with global step 0", bar)[1] == 1


def test_the_epoch_of_keras_is_read_from_the_line_above_its_bars():
    lines = ["Epoch 1/3", "8/8 ━━━━━━ 0s 4ms/step - loss: 2.0", "Epoch 2/3", "3/8 ━━━━━━ 0s 4ms/step - loss: 1.9"]
    assert [steps(*lines)[index] for index in (1, 3)] == [8, 11]


def test_bars_that_start_again_without_an_epoch_are_added_up():
    bars = [f"{done}%|█ | {done}/100 [00:01<00:01, 30it/s, loss=1]" for done in (1, 50, 100, 1, 50, 100, 1)]
    assert steps(*bars) == [1, 50, 100, 101, 150, 200, 201]


def test_the_bar_of_a_slow_rank_does_not_start_a_new_epoch():
    bars = [f"{done}%|█ | {done}/100 [00:01<00:01, 30it/s, loss=1]" for done in (50, 100, 1, 100, 2, 1, 50)]
    assert steps(*bars)[-1] == 150


def test_a_count_that_starts_again_with_each_epoch_is_added_up():
    assert steps(
        "Epoch 1, Batch 5, Loss: 2",
        "Epoch 1, Batch 10, Loss: 2",
        "Epoch 2, Batch 5, Loss: 2",
        "Epoch 3, Batch 5, Loss: 1",
    ) == [5, 10, 15, 20]


def test_a_count_over_the_whole_run_is_not_changed():
    assert steps("epoch 1 step 90 loss 2", "epoch 2 step 100 loss 2", "epoch 2 step 40 loss 2") == [90, 100, 40]


def test_a_bar_and_a_count_side_by_side_do_not_disturb_each_other():
    lines = []
    for step in range(1, 25):
        epoch, done = (step - 1) // 8 + 1, (step - 1) % 8 + 1
        lines += [
            f"Epoch [{epoch}/3]: [{done}/8]  12%|█▎        , loss=3.38 [00:00<00:00]",
            f"2026-03-01 10:00:00,123 trainer INFO: Epoch[{epoch}] Iteration[{step}] Loss: 2.5",
        ]
    assert steps(*lines) == [step for step in range(1, 25) for _ in range(2)]


def test_the_bar_of_an_evaluation_does_not_change_the_step():
    assert steps(
        "10%|█ | 30/300 [00:01<00:01, 3.0it/s]",
        "100%|█ | 12/12 [00:01<00:01]",
        "validation: 1%|█ | 900/900 [00:01<00:01]",
    ) == [30, 30, None]


# transformers


def numbers(step, per_epoch, version):
    epoch = step / per_epoch
    shown = f"'{epoch:.4g}'" if version == 5 else f"{round(epoch, 2)}"
    return f"{{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {shown}}}"


def bar(step, total, rate=150.0):
    return f" {100 * step // total:2d}%|█         | {step}/{total} [00:10<01:30, {rate:.2f}it/s]"


def test_numbers_belong_to_the_step_of_the_bar_after_them():
    lines = [bar(3, 60), numbers(5, 40, 5), bar(5, 60), bar(8, 60), numbers(10, 40, 5), bar(10, 60), numbers(15, 40, 5)]
    found = steps(*lines)
    assert found[1] is None  # a fast bar does not show every step, and nothing is known yet
    assert (found[4], found[6]) == (10, 15)


def test_a_fault_in_numbers_without_a_step_has_none():
    follower = Follower()
    follower.step(bar(3, 60))
    follower.step(numbers(5, 40, 5))
    assert follower.track.step is None and follower.track.snapshot().furthest_step == 3
    assert follower.step(bar(5, 60)) == 5


def test_a_slow_bar_shows_every_step():
    assert steps(bar(5, 60, rate=2.5), numbers(5, 40, 4))[1] == 5


def test_the_length_of_a_transformers_run_is_enough_to_know_the_step():
    plan = ["***** Running training *****", "  Num Epochs = 3", "  Total optimization steps = 1,200"]
    assert steps(*plan, numbers(10, 400, 5), numbers(20, 400, 5))[3:] == [10, 20]


def test_numbers_that_come_late_in_one_piece_get_no_step():
    late = [numbers(step, 40, 5) for step in range(5, 65, 5)]
    assert set(steps(bar(30, 60), bar(60, 60), *late)[3:]) == {None}


runs = st.fixed_dictionaries(
    {
        "per_epoch": st.integers(3, 5000),
        "epochs": st.integers(1, 5),
        "every": st.integers(1, 100),
        "version": st.sampled_from([4, 5]),
        "drawn": st.lists(st.booleans(), min_size=1, max_size=7),
    }
)


@given(runs)
def test_a_step_of_transformers_is_right_or_unknown(run):
    total = run["per_epoch"] * run["epochs"]
    follower = Follower()
    for index, step in enumerate(range(run["every"], total + 1, run["every"])):
        if index > 60:
            break
        if run["drawn"][index % len(run["drawn"])]:
            follower.step(bar(max(step - run["every"], step - index % 3, 1), total))
        assert follower.step(numbers(step, run["per_epoch"], run["version"])) in (None, step)
        follower.step(bar(step, total))
        assert follower.track.step == step


SHOWN = {
    "tqdm": "Epoch {epoch1}: 10%|█ | {done}/{total} [00:01<00:01, 9.0it/s, loss=1.5]",
    "Lightning": "Epoch {epoch0}: 10%|█ | {done}/{total} [00:01<00:01, 9.0it/s, v_num=0, loss=1.5]",
    "Lightning, rich": "Epoch {epoch0}/9  ━━━━ {done}/{total} 0:00:00 • 0:00:00 9.5it/s train_loss: 1.5",
    "mmengine": "mmengine - INFO - Epoch(train) [{epoch1}][{done}/{total}]  lr: 1e-3  loss: 1.5",
    "torchvision": "Epoch: [{epoch0}]  [{done}/{total}]  eta: 0:12:30  loss: 1.5 (1.6)",
    "Composer": "[epoch={epoch1}][batch={done}/{total}]: loss: 1.5",
    "Ultralytics": "  {epoch1}/9  1.6G  1.2  2.3  1.1  11  640: 12%|█▎ | {done}/{total} [00:01<00:08,  2.5it/s]",
    "Keras": "{done}/{total} ━━━━━━━ 1s 4ms/step - loss: 1.25",
}


@pytest.mark.parametrize("name", SHOWN)
@given(st.integers(2, 50), st.integers(1, 4), st.integers(1, 9))
def test_a_count_inside_an_epoch_becomes_a_count_over_the_run(name, total, epochs, every):
    follower = Follower()
    for step in range(epochs * total):
        epoch, done = step // total, step % total + 1
        if name == "Keras" and done == 1:
            follower.step(f"Epoch {epoch + 1}/{epochs}")
        if done % every == 0:
            line = SHOWN[name].format(epoch0=epoch, epoch1=epoch + 1, done=done, total=total)
            assert follower.step(line) == step + 1


def total(*lines):
    follower = Follower()
    for line in lines:
        follower.step(line)
    return follower.track.snapshot().total


def batches(done, total=100, head=""):
    return f"{head}{done}%|█ | {done}/{total} [00:01<00:01, 30it/s, loss=1]"


def test_the_length_of_the_run_is_what_its_bar_or_its_plan_says():
    assert total("step 5 loss 1.0") is None
    assert total(batches(50)) == 100
    assert total("  Total optimization steps = 1,200", "{'loss': 1.0, 'epoch': 0.1}") == 1200


def test_a_bar_that_counts_an_epoch_is_not_the_length_of_the_run():
    assert total(batches(50), batches(100), batches(1)) is None
    assert total(batches(50, head="Epoch 1: ")) is None


def test_a_bar_of_batches_is_not_the_length_of_a_run_whose_updates_are_counted_inside():
    assert total(batches(50), "rung| step step=25 loss=1.0") is None
