"""Tests the numbers that are read from one line, in all known formats."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.recovery.logs.line_reader import LineReader, read
from rung.recovery.logs.metric_names import Role, role

# line, step as printed, loss
LOSSES = [
    ("step 120 loss 2.31", 120, 2.31),
    ("Step: 7 | Loss: 0.5", 7, 0.5),
    ("epoch 1 iter 30: loss=4.25", 30, 4.25),
    ("Numerical issue: total_loss=nan, kd=0.0000, ce=nan", None, math.nan),
    ("Training:   1%|▏    | 12/3000 [00:33<53:52,  1.08s/it, loss=nan, lr=0.002]", 12, math.nan),
    ("{'loss': 1.7, 'grad_norm': 2.9, 'learning_rate': 2e-05, 'epoch': 0.16}", None, 1.7),
    ("{'loss': '1.7', 'grad_norm': 'nan', 'learning_rate': '2e-05', 'epoch': '0.16'}", None, 1.7),
    (" 10%|█         | 90/900 [00:10<01:30, 9.0it/s]{'loss': 0.7, 'epoch': 0.6}", 90, 0.7),
    ("iter 640: loss 3.1416, time 210.50ms, mfu 30.10%", 640, 3.1416),
    ("step 500: train loss 1.9, val loss 2.1", 500, 1.9),
    ("step:300/9000 avg_train_loss:inf time:40s step_avg:99ms", 300, math.inf),
    ("Epoch 2:  50%|█████     | 100/200 [00:03<00:03, 33.0it/s, loss=0.9, v_num=3]", 100, 0.9),
    ("Epoch 2:  50%|█████     | 100/200 [00:03<00:03, v_num=3, train_loss_step=0.9]", 100, 0.9),
    ("320/320 [==============================] - 2s 6ms/step - loss: nan - acc: 0.1 - val_loss: 2.0", 320, math.nan),
    ("63/63 ━━━━━━━━━━━━━━━━━━━━ 1s 4ms/step - accuracy: 0.5 - loss: 1.25", 63, 1.25),
    ("| epoch 003 | loss 4.3 | nll_loss 2.8 | num_updates 905 | lr 0.0008 | gnorm 1.2 | loss_scale 8", 905, 4.3),
    ("| epoch 003:    80 / 160 loss=4.3, nll_loss=2.8, num_updates=905, lr=0.0008, gnorm=1.2", 905, 4.3),
    (" iteration      860/   50000 | learning rate: 1.5E-04 | lm loss: 2.6E+00 | loss scale: 4096.0 |", 860, 2.6),
    (" iteration 861/ 50000 | loss scale: 2048.0 | number of nan iterations: 1 |", 861, math.nan),
    ('{"step": 10, "loss": NaN, "lr": 0.0001}', 10, math.nan),
    ("Epoch: [1]  [ 10/100]  eta: 0:12:30  lr: 0.0001  loss: 6.5 (6.9)  time: 0.6", 10, 6.5),
    ("Epoch(train) [1][ 20/733]  lr: 4.0e-05  grad_norm: nan  loss: nan  loss_cls: nan  acc: 0.0", 20, math.nan),
    ("[3,  2400] loss: 1.25", 2400, 1.25),
    ("    4/90      2.1G        nan      1.201     0.9120         42        640:  12%|█", None, math.nan),
    ("Epoch 1, Batch 34, Training Loss: nan, Validation Loss: 3.1", 34, math.nan),
    ("|    loss                 | 0.0123   |", None, 0.0123),
    ("loss: tensor(nan, device='cuda:0', grad_fn=<NllLossBackward0>)", None, math.nan),
    ("loss_rpn=0.5, loss_cls=inf, loss_box=0.1", None, math.inf),
    ("epoch: 0|step: 11|act_loss: -0.25|cri_loss: -0.5", 11, -0.25),
    ("trainLoss: 0.5", None, 0.5),
    ("Epoch 1:  31%|███▏      | 5/16 [00:00<00:00, 479.51it/s, train_loss=nan.0, val_loss=3.670]", 5, math.nan),
    ("Epoch 1:  31%|███▏      | 5/16 [00:00<00:00, 479.51it/s, train_loss=inf.0]", 5, math.inf),
    ("Epoch 2/2  ━━━━━━━━━━━━━━━━ 16/16 0:00:00 • 0:00:00 173.25it/s train_loss: 0.5", 16, 0.5),
    ("Epoch 0:   0%|          | 0/16 [00:00<?, ?it/s, loss=4.1]", None, 4.1),
    ("step=3 loss=2.5, kd=0.1, ce=nan", 3, math.nan),
    ("step=3 loss=2.5 loss_mask=inf", 3, math.inf),
    ("step=3 ema_loss=nan loss=2.5", 3, 2.5),
    ("2026-03-01 10:00:00.1 | INFO | __main__:train_step:88 - loss=0.5", None, 0.5),
    ("[0, 3.25, 2.5, '00:01']", None, 3.25),
    ("[1, nan, nan, 0.5, '00:01']", None, math.nan),
    ("wandb:               train/loss 0.25", None, 0.25),
]  # fmt: skip
NO_LOSS = [
    "step:0/9000 val_loss:10.9 train_time:0.2s step_avg:nanms",
    "hinge_loss_nan  [False]",
    "logging_nan_inf_filter=True,",
    "            run_name  best_val_loss  final_val_loss",
    "  G2_some_weights       1.461392             NaN",
    "| Forklift  | nan    |             |        |",
    "{'bbox': {'AP': 29.7, 'APs': nan}}",
    "{'eval_loss': 1.9, 'eval_runtime': 3.1, 'epoch': 1.0}",
    "lr: nan",
    "0: Gradient norm: nan",
    "best_loss=inf",
    "loss_scale: 0",
    '    "loss_scale_window": 1000,',
    "    stopLoss: NaN, pLoss: NaN };",
    "    min_loss = float('inf')",
    "# output: loss: nan",
    "validation: 100%|███| 3/3 [00:01<00:00, loss=nan]",
    "{'train_runtime': 13.4, 'train_loss': 2.6, 'epoch': 5.0}",
    "the loss is measured in nats",
    "  0%|          | 0/60 [00:00<?, ?it/s]",
    "loss: nan.05",
    "/site-packages/model/loss.py:120: UserWarning: something is deprecated",
    "kl=nan, entropy=1.2",
    "",
]


@pytest.mark.parametrize(("text", "step", "loss"), LOSSES)
def test_step_and_loss_are_read(text, step, loss):
    reading = read(text)
    assert reading.step == step
    assert reading.loss == loss or (math.isnan(loss) and math.isnan(reading.loss))
    assert not reading.is_record


@pytest.mark.parametrize("text", NO_LOSS)
def test_a_value_that_is_not_a_training_loss_is_not_read_as_one(text):
    reading = read(text)
    assert reading is None or reading.loss is None


def test_a_line_about_a_restored_checkpoint_gives_the_resumed_step():
    path = "/home/user/checkpoints/epoch=2-step=48.ckpt"
    for text in (f"Restored all states from the checkpoint at {path}", "  Resuming training with global step 48"):
        reading = read(text)
        assert (reading.resumed_step, reading.step) == (48, None)


def test_every_field_of_a_step_record_is_read():
    reading = read("rung| step step=501 loss=2.5 lr=0.001 grad_norm=inf scale=65536 skipped=1 extra=3")
    assert (reading.step, reading.loss, reading.lr, reading.scale, reading.skipped) == (501, 2.5, 0.001, 65536.0, True)
    assert math.isinf(reading.grad_norm)
    assert reading.values["extra"] == 3
    assert reading.is_record


def test_a_step_record_may_leave_keys_out():
    reading = read("[rank0]: rung| step step=3 loss=nan")
    assert reading.step == 3 and math.isnan(reading.loss)
    assert reading.scale is None and reading.skipped is None


def test_knobs_are_read_with_their_types():
    reading = read('rung| knobs lr=0.001 clip=off growth_interval=2000 precision=amp_fp16 note="two \\"words\\""')
    assert reading.effective == {
        "lr": 0.001, "clip": None, "growth_interval": 2000, "precision": "amp_fp16", "note": 'two "words"',
    }  # fmt: skip
    assert isinstance(reading.effective["growth_interval"], int)


def test_resumed_saved_and_metric_records_are_read():
    assert read("rung| resumed step=500 file=step_500.pt").resumed_step == 500
    assert read("rung| resumed step=0 file=none").resumed_step == 0
    assert read('rung| saved step=500 file="a b.pt"').saved_step == 500
    metric = read("rung| metric step=600 val_loss=1.93 loss=9")
    assert metric.values == {"val_loss": 1.93, "loss": 9} and metric.loss is None and metric.step is None


@pytest.mark.parametrize(
    "text", ["rung| step step={step} loss={loss}", "rung|", "rung| stepping step=1", "rung| other a=1"]
)
def test_a_line_that_only_looks_like_a_record_is_not_read(text):
    assert read(text) is None


def test_named_values_are_kept_for_the_success_metric():
    assert read("{'eval_loss': 1.9, 'eval_accuracy': 0.8}").values == {"eval_loss": 1.9, "eval_accuracy": 0.8}
    assert read("Validation Loss: 3.1").values == {"Validation_Loss": 3.1}
    assert read("val_loss=nan").held_out_loss != read("val_loss=2.0").held_out_loss == 2.0


def test_a_loss_scale_counts_only_beside_a_step_or_a_loss():
    assert read('"loss_scale": 0,').scale is None
    assert read("step=3, loss_scale=0").scale == 0


@pytest.mark.parametrize("digits", ["9" * 5000, "1" * 40, "-5", "1.5", "nan"])
def test_an_impossible_step_is_not_read(digits):
    assert read(f"rung| step step={digits} loss=1").step is None
    reading = read(f"step={digits} loss=1.0")
    assert reading.step is None or reading.step < 10**15


def test_the_role_of_a_value_follows_from_its_name():
    assert role("train/loss") is role("avg_train_loss") is role("LOSS") is Role.LOSS
    assert role("val_loss") is role("eval/loss") is role("Test Loss") is Role.HELD_OUT
    assert role("loss_cls") is role("kl_loss") is Role.NAMED_TERM
    assert role("kd") is role("train/ce") is role("kd_step") is Role.UNNAMED_TERM
    assert role("train_num_updates") is role("global_step") is Role.STEP
    assert role("val_ce") is role("accuracy") is Role.OTHER
    assert role("best_loss") is role("loss_weight") is role("stopLoss") is role("glossary") is Role.OTHER


@given(st.text(max_size=300))
def test_any_text_is_read_without_a_crash(text):
    reading = read(text)
    assert reading is None or reading.step is None or 0 <= reading.step < 10**15


@given(st.integers(0, 10**9), st.floats(allow_nan=False, width=32))
def test_a_record_reads_back_as_written(step, loss):
    reading = read(f"rung| step step={step} loss={loss!r}")
    assert (reading.step, reading.loss) == (step, loss)


def read_all(*lines):
    reader = LineReader()
    return [reader.read(line) for line in lines]


def test_a_function_for_a_name_is_the_loss_until_the_log_has_one_by_name():
    losses = [
        reading.loss
        for reading in read_all("step 1 nll: 0.5", "step 2 nll: 0.25", "step 2 loss: 2.0", "step 3 nll: 1.0")
    ]
    assert losses == [0.5, 0.25, 2.0, None]
    *_, later = read_all("step 1 loss: 2.0", "step 2 rmse: nan")
    assert later.loss is None and later.step == 2 and math.isnan(later.values["rmse"])


def test_a_score_is_the_loss_from_its_second_line_on():
    assert [reading.loss for reading in read_all("step 1 rmse: 0.5", "step 2 rmse: 0.25")] == [None, 0.25]
    assert [reading.loss for reading in read_all("step 1 rmse: nan", "step 1 loss: 2.0", "step 2 rmse: nan")] == [
        None,
        2.0,
        None,
    ]


def test_a_scale_alone_on_its_line_is_a_setting_until_it_changes():
    scales = [reading.scale for reading in read_all(*["loss_scale: 128"] * 3, "loss_scale: 64", "loss_scale: 0")]
    assert scales == [None, None, None, 64, None]
    # The scale of an image or of an adapter is no loss scale.
    assert [reading.scale for reading in read_all("scale: 0.5", "scale: 0.25")] == [None, None]
    assert [reading.scale for reading in read_all("loss_scale: 8", "grad_scale: 4")] == [None, None]
