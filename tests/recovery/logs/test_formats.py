# ruff: noqa: E501
"""Tests that every number of a line is read exactly, in the format of each framework that Rung knows."""

import math

import pytest

from rung.recovery.logs.line_reader import read
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.tables import Tables

# name, line, its fields; all other fields must be empty.
FORMATS = [
    ("plain", "step 120 | loss 2.31 | lr 3e-04 | grad norm 1.25",
     {"step": 120, "loss": 2.31, "lr": 3e-4, "grad_norm": 1.25}),
    ("parts", "Step 7: total_loss=2.5, kd=0.125, ce=2.375, lr=1e-3",
     {"step": 7, "loss": 2.5, "lr": 1e-3, "loss_terms": ("kd", "ce")}),
    ("build-nanogpt", "step   500 | loss: 3.123456 | lr 6.0000e-04 | norm: 0.2888 | dt: 300.10ms | tok/sec: 17476.25",
     {"step": 500, "loss": 3.123456, "lr": 6e-4, "grad_norm": 0.2888,
      "throughput": {"ms/it": 300.10, "tokens/s": 17476.25}}),
    ("time since", "1m 12s (- 10m 4s) (5000 12%) 2.8521", {"step": 5000, "loss": 2.8521}),
    ("time since, names", "5000 5% (0m 7s) 2.6379 Ito / Italian", {"step": 5000, "loss": 2.6379}),
    ("time since, no plan", "0m 8s (300 6%) 2.5", {"step": 300, "loss": 2.5}),
    ("prose", "Minibatch loss at step 300: 2.5", {"step": 300, "loss": 2.5}),
    ("prose, a verb", "loss at epoch 3 is 0.75", {"loss": 0.75}),
    ("in brackets", "Epoch 3 loss (avg): 0.75", {"loss": 0.75}),
    ("a caption", "Loss(s/batch) - Epoch  4: train = 0.75(91.25s/40) | dev = 0.5(9.5s/4)",
     {"loss": 0.75, "held_out_loss": 0.5}),
    ("a caption of sides", "epoch 4 losses: train 0.75 val 0.5", {"loss": 0.75, "held_out_loss": 0.5}),
    ("darknet", " 31: 418.5, 420.25 avg loss, 0.001 rate, 2.5 seconds, 1984 images", {"step": 31, "loss": 418.5}),
    ("glued", "step 7 lossD: 1.5 lossG: 0.5", {"step": 7, "loss": 1.5, "loss_terms": ("lossD", "lossG")}),
    ("cross-entropy", "step 7 train-cross-entropy=2.5", {"step": 7, "loss": 2.5, "loss_terms": ("train-cross-entropy",),
                                                         "is_loss_by_function": True}),
    ("Windows", "Iteration 20, loss = 1.#INF", {"step": 20, "loss": math.inf}),
    ("thousands", "step 25  loss 14,263.5  lr 0.001", {"step": 25, "loss": 14263.5, "lr": 0.001}),
    ("upd", "upd   12 loss=2.5 scaler=512", {"step": 12, "loss": 2.5, "scale": 512}),
    ("it", "it  14  loss=2.5", {"step": 14, "loss": 2.5}),
    ("scale grew", "step 31 loss 0.5, amp scale increased to 16", {"step": 31, "loss": 0.5, "scale": 16}),
    ("nanoGPT", "iter 640: loss 3.1416, time 210.50ms, mfu 30.10%",
     {"step": 640, "loss": 3.1416, "throughput": {"ms/it": 210.5}}),
    ("speed run", "step:300/9000 train_loss:2.5 train_time:40100ms step_avg:99.50ms",
     {"step": 300, "loss": 2.5, "throughput": {"ms/it": 99.5}}),
    ("tqdm", "Training:   1%|▏    | 12/3000 [00:33<53:52,  1.08s/it, loss=0.5, lr=0.002]",
     {"step": 12, "total": 3000, "loss": 0.5, "lr": 0.002, "throughput": {"s/it": 1.08}}),
    ("tqdm per epoch", "Epoch 2/3:  50%|█████     | 100/200 [00:03<00:03, 33.25it/s, loss=0.9]",
     {"step": 100, "total": 200, "epoch": 2, "in_epoch": True, "loss": 0.9, "throughput": {"it/s": 33.25}}),
    ("endless tqdm", "Epoch 1/1: 201it [00:24,  7.66it/s, loss=0.25]",
     {"step": 201, "epoch": 1, "in_epoch": True, "loss": 0.25, "throughput": {"it/s": 7.66}}),
    ("transformers 4", "{'loss': 1.7, 'grad_norm': 2.9, 'learning_rate': 2e-05, 'epoch': 0.16}",
     {"loss": 1.7, "grad_norm": 2.9, "lr": 2e-5, "epoch": 0.16, "step_is_late": True}),
    ("transformers 5", "{'loss': '1.7', 'grad_norm': '2.9', 'learning_rate': '2e-05', 'epoch': '0.16'}",
     {"loss": 1.7, "grad_norm": 2.9, "lr": 2e-5, "epoch": 0.16, "step_is_late": True}),
    ("transformers, end", "{'train_runtime': 13.4, 'train_samples_per_second': 1416.5, 'train_steps_per_second': 177.5,"
     " 'train_loss': 2.6, 'epoch': 5.0}",
     {"epoch": 5, "throughput": {"samples/s": 1416.5, "it/s": 177.5}}),
    ("transformers, evaluation", "{'eval_loss': 1.9, 'eval_runtime': 3.1, 'eval_samples_per_second': 5.1, 'epoch': 1.0}",
     {"held_out_loss": 1.9, "epoch": 1}),
    ("Accelerate", "Steps:  33%|███▎      | 8/24 [00:00<00:00, 109.09it/s, loss=3.3, lr=0.01]",
     {"step": 8, "total": 24, "loss": 3.3, "lr": 0.01, "throughput": {"it/s": 109.09}}),
    ("Lightning", "Epoch 1:  31%|███▏      | 5/16 [00:00<00:00, 479.51it/s, v_num=0, train_loss=0.25, kd=0.125]",
     {"step": 5, "total": 16, "epoch": 1, "in_epoch": True, "loss": 0.25, "loss_terms": ("kd",),
      "throughput": {"it/s": 479.51}}),
    ("Lightning, rich", "Epoch 2/2  ━━━━━━━━ 16/16 0:00:00 • 0:00:00 173.25it/s train_loss: 0.5",
     {"step": 16, "total": 16, "epoch": 2, "first_epoch": 0, "in_epoch": True, "loss": 0.5,
      "throughput": {"it/s": 173.25}}),
    ("DeepSpeed", "[2026-03-01 01:53:12,974] [INFO] [logging.py:96:log_dist] [Rank 0] step=500, skipped=6,"
     " lr=[9.5e-06, 9.5e-06], mom=[(0.9, 0.95), (0.9, 0.95)]",
     {"step": 500, "lr": 9.5e-6}),
    ("DeepSpeed, timer", "[2026-03-01 01:53:13,003] [INFO] [timer.py:199:stop] epoch=1/micro_step=40/global_step=500,"
     " RunningAvgSamplesPerSec=171.5, CurrSamplesPerSec=170.25, MemAllocated=3.96GB",
     {"step": 500, "epoch": 1, "throughput": {"samples/s": 171.5}}),
    ("DeepSpeed-Chat", "epoch: 0|step: 11|ppo_ep: 1|act_loss: -0.25|cri_loss: -0.5|unsuper_loss: 0.0",
     {"step": 11, "epoch": 0, "loss": -0.25, "loss_terms": ("act_loss", "cri_loss", "unsuper_loss")}),
    ("apex", "0: TRAIN [3][10/1885]  Time 0.147 (0.172)  Data 2.25e-04 (1.97e-02)  Tok/s 100419 (91248)"
     "  Loss/tok 3.2230 (3.2692)  LR 2.800e-03",
     {"step": 10, "total": 1885, "epoch": 3, "first_epoch": 0, "in_epoch": True, "loss": 3.223, "lr": 2.8e-3,
      "throughput": {"tokens/s": 100419}}),
    ("fairseq, old", "| epoch 003:    80 / 160 loss=4.3, nll_loss=2.8, wps=3203, ups=4.1, num_updates=905, lr=0.0008,"
     " gnorm=1.2, loss_scale=8.000, wall=12",
     {"step": 905, "epoch": 3, "loss": 4.3, "lr": 8e-4, "grad_norm": 1.2, "scale": 8, "loss_terms": ("nll_loss",),
      "throughput": {"tokens/s": 3203, "it/s": 4.1}}),
    ("fairseq", "2026-03-01 10:00:00 | INFO | train_inner | epoch 001:     20 / 245 loss=12.5, nll_loss=12.25, ppl=4870,"
     " wps=35500, ups=12.5, wpb=2835, num_updates=20, lr=2.5e-06, gnorm=6.5, loss_scale=64, train_wall=2",
     {"step": 20, "epoch": 1, "loss": 12.5, "lr": 2.5e-6, "grad_norm": 6.5, "scale": 64, "loss_terms": ("nll_loss",),
      "throughput": {"tokens/s": 35500, "it/s": 12.5}}),
    ("fairseq, epoch", "| epoch 003 | loss 4.3 | nll_loss 2.8 | wps 3203 | ups 4.2 | num_updates 905 | lr 0.0008"
     " | gnorm 1.2 | loss_scale 8",
     {"step": 905, "epoch": 3, "loss": 4.3, "lr": 8e-4, "grad_norm": 1.2, "scale": 8, "loss_terms": ("nll_loss",),
      "throughput": {"tokens/s": 3203, "it/s": 4.2}}),
    ("fairseq, JSON", '{"epoch": 1, "update": 0.5, "loss": "4.25", "nll_loss": "2.5", "wps": "3203", "ups": "4.5",'
     ' "num_updates": "905", "lr": "0.0008", "gnorm": "1.25", "loss_scale": "8"}',
     {"step": 905, "epoch": 1, "loss": 4.25, "lr": 8e-4, "grad_norm": 1.25, "scale": 8, "loss_terms": ("nll_loss",),
      "throughput": {"tokens/s": 3203, "it/s": 4.5}}),
    ("fairseq, JSON, epoch", '{"epoch": 1, "train_loss": "4.25", "train_num_updates": "905", "train_lr": "0.0008",'
     ' "train_gnorm": "1.25", "train_loss_scale": "8", "train_wps": "3203"}',
     {"step": 905, "epoch": 1, "loss": 4.25, "lr": 8e-4, "grad_norm": 1.25, "scale": 8,
      "throughput": {"tokens/s": 3203}}),
    ("Megatron-LM", " [2026-03-01 10:00:00] iteration      860/   50000 | consumed samples:       110080 |"
     " elapsed time per iteration (ms): 210.5 | throughput per GPU (TFLOP/s/GPU): 95.1 | learning rate: 1.500000E-04 |"
     " global batch size:   128 | lm loss: 2.625000E+00 | loss scale: 4096.0 | grad norm: 1.125 |"
     " number of skipped iterations:   0 | number of nan iterations:   0 |",
     {"step": 860, "loss": 2.625, "lr": 1.5e-4, "scale": 4096, "grad_norm": 1.125, "skipped": False,
      "throughput": {"ms/it": 210.5}}),
    ("Megatron-LM, skipped", " iteration 861/ 50000 | loss scale: 2048.0 | number of skipped iterations:   1 |"
     " number of nan iterations:   0 |",
     {"step": 861, "scale": 2048, "skipped": True}),
    ("detectron2", "[03/01 10:00:00 d2.utils.events]:  eta: 0:12:30  iter: 19  total_loss: 1.25  loss_cls: 0.75"
     "  loss_box_reg: 0.5  time: 0.2125  last_time: 0.2  data_time: 0.01  lr: 0.00025  max_mem: 2000M",
     {"step": 19, "loss": 1.25, "lr": 2.5e-4, "loss_terms": ("loss_cls", "loss_box_reg"), "throughput": {"s/it": 0.2125}}),
    ("mmengine", "2026/03/01 10:00:00 - mmengine - INFO - Epoch(train) [2][ 20/733]  lr: 4.0e-05  eta: 1:02:03"
     "  time: 0.3125  data_time: 0.01  memory: 2000  grad_norm: 5.5  loss: 1.5  loss_cls: 1.0  loss_bbox: 0.5",
     {"step": 20, "total": 733, "epoch": 2, "first_epoch": 1, "in_epoch": True, "loss": 1.5, "lr": 4e-5,
      "grad_norm": 5.5, "loss_terms": ("loss_cls", "loss_bbox"), "throughput": {"s/it": 0.3125}}),
    ("mmengine, iterations", "2026/03/01 10:00:00 - mmengine - INFO - Iter(train) [   40/80000]  lr: 1e-03  eta: 1:02:03"
     "  time: 0.3125  data_time: 0.01  loss: 1.5",
     {"step": 40, "total": 80000, "loss": 1.5, "lr": 1e-3, "throughput": {"s/it": 0.3125}}),
    ("mmdetection 2", "2022-03-01 10:00:00,123 - mmdet - INFO - Epoch [1][50/7330]\tlr: 1.978e-03, eta: 1 day, 1:02:03,"
     " time: 0.415, data_time: 0.052, memory: 3821, loss_rpn_cls: 0.5, loss: 1.25, grad_norm: 2.5".replace("\t", " "),
     {"step": 50, "total": 7330, "epoch": 1, "first_epoch": 1, "in_epoch": True, "loss": 1.25, "lr": 1.978e-3,
      "grad_norm": 2.5, "loss_terms": ("loss_rpn_cls",), "throughput": {"s/it": 0.415}}),
    ("torchvision", "Epoch: [1]  [ 10/100]  eta: 0:12:30  lr: 0.0001  img/s: 42.5  loss: 6.5 (6.9)  time: 0.625",
     {"step": 10, "total": 100, "epoch": 1, "first_epoch": 0, "in_epoch": True, "loss": 6.5, "lr": 1e-4,
      "throughput": {"samples/s": 42.5, "s/it": 0.625}}),
    ("ImageNet example", "Epoch: [2][ 10/40]  Time  0.123 ( 0.200)  Data  0.001 ( 0.010)  Loss 1.2500e+00 (1.3000e+00)",
     {"step": 10, "total": 40, "epoch": 2, "first_epoch": 0, "in_epoch": True, "loss": 1.25}),
    ("timm", "Train: 2 [  50/100 ( 50%)]  Loss: 1.25 (1.3)  Time: 0.123s,  520.30/s  (0.130s,  500.00/s)"
     "  LR: 1.000e-03  Data: 0.001 (0.001)",
     {"step": 50, "total": 100, "epoch": 2, "first_epoch": 0, "in_epoch": True, "loss": 1.25, "lr": 1e-3,
      "throughput": {"s/it": 0.123, "samples/s": 520.3}}),
    ("tutorial", "[3,  2400] loss: 1.25", {"step": 2400, "epoch": 3, "in_epoch": True, "loss": 1.25}),
    ("PyTorch examples", "Train Epoch: 3 [640/60000 (1%)] Loss: 0.125", {"epoch": 3, "loss": 0.125}),
    ("Keras 3", "63/63 ━━━━━━━━━━━━━━━━━━━━ 1s 4ms/step - loss: 1.25 - mae: 0.5 - val_loss: 1.5",
     {"step": 63, "total": 63, "first_epoch": 1, "in_epoch": True, "loss": 1.25, "held_out_loss": 1.5,
      "throughput": {"ms/it": 4}}),
    ("Keras 2", "320/320 [==============================] - 2s 6ms/step - loss: 0.5 - acc: 0.1",
     {"step": 320, "total": 320, "first_epoch": 1, "in_epoch": True, "loss": 0.5, "throughput": {"ms/it": 6}}),
    ("Keras, epoch", "Epoch 3/10", {"epoch": 3}),
    ("ignite", "2026-03-01 10:00:00,123 trainer INFO: Epoch[3] Iteration[20] Loss: 2.0234",
     {"step": 20, "epoch": 3, "loss": 2.0234}),
    ("Composer", "[epoch=3][batch=6/8]:",
     {"step": 6, "total": 8, "epoch": 3, "first_epoch": 1, "in_epoch": True}),
    ("JSON", '{"step": 10, "train/loss": 2.5, "lr": 1e-4, "grad_norm": 0.5, "loss_scale": 1024, "tokens_per_second": 5e3}',
     {"step": 10, "loss": 2.5, "lr": 1e-4, "grad_norm": 0.5, "scale": 1024, "throughput": {"tokens/s": 5000}}),
    ("JSON, skipped", '{"step": 10, "loss": 2.5, "loss_scale": 512.0, "skipped": true}',
     {"step": 10, "loss": 2.5, "scale": 512, "skipped": True}),
    ("logfmt", 'ts=2026-03-01T10:00:00Z level=info msg="train step" step=10 loss=2.5 lr=0.001 samples_per_sec=51.5',
     {"step": 10, "loss": 2.5, "lr": 1e-3, "throughput": {"samples/s": 51.5}}),
    ("logging", "2026-03-01 10:00:00,123 - train - INFO - Step 10 | Loss: 2.5 | Grad Norm: 0.5 | LR: 1e-3 | Scale: 1024.0",
     {"step": 10, "loss": 2.5, "lr": 1e-3, "grad_norm": 0.5, "scale": 1024}),
    ("loguru", "2026-03-01 10:00:00.123 | INFO     | __main__:train_step:88 - epoch=1 step=10 loss=2.5 it/s=4.5",
     {"step": 10, "epoch": 1, "loss": 2.5, "throughput": {"it/s": 4.5}}),
    ("torchrun", "[rank1]: step=10 loss=2.5 lr=0.001", {"step": 10, "loss": 2.5, "lr": 1e-3}),
    ("torchrun --tee", "[default0]:step 10 loss 2.5", {"step": 10, "loss": 2.5}),
    ("srun --label", "3: step 10 loss 2.5", {"step": 10, "loss": 2.5}),
    ("a word after loss", "Steps : 30, Gen Loss Total : 86.5, Mel Error : 1.75", {"loss": 86.5,
     "loss_terms": ("Gen_Loss_Total",)}),
    ("a network after loss", "iter 30 loss D: 0.5, loss G: 1.5", {"step": 30, "loss": 0.5, "loss_terms": ("loss_D", "loss_G")}),
    ("fastprogress", " 22.10% [210/950 00:12<00:41 0.3712]", {"step": 210, "total": 950, "loss": 0.3712}),
    ("OpenNMT", "[2026-03-01 10:00:10,001 INFO] Step 50/9000; acc:  21.10; ppl: 420.10; xent: 6.04; lr: 0.00010",
     {"step": 50, "loss": 6.04, "lr": 1e-4, "loss_terms": ("xent",)}),
    ("a function for a name", "[2,  1000] RMSE: 4.25", {"step": 1000, "epoch": 2, "in_epoch": True, "loss": 4.25}),
    ("a function without a step", "epoch 3 rmse: 0.25", {}),
    ("a held-out function", "step 40 validation rmse: 0.25", {"step": 40}),
    ("a function beside a loss", "step 40 loss 2.5 rmse: nan", {"step": 40, "loss": 2.5}),
    ("a divergence of a policy", "step 40 reward: 1.5 kl: 0.25", {"step": 40, "loss_terms": ("kl",)}),
    ("stable-baselines", "|    loss                 | 0.0125   |", {"loss": 0.0125}),
    ("our own", "rung| step step=10 loss=2.5 lr=0.001 grad_norm=0.5 scale=1024 skipped=0 kd=0.5",
     {"step": 10, "loss": 2.5, "lr": 1e-3, "grad_norm": 0.5, "scale": 1024, "skipped": False, "loss_terms": ("kd",)}),
    ("our own, one part bad", "rung| step step=10 loss=2.5 ce=inf kd=0.5",
     {"step": 10, "loss": float("inf"), "loss_terms": ("ce", "kd")}),
]  # fmt: skip
FIELDS = ("step", "loss", "lr", "grad_norm", "scale", "skipped", "held_out_loss", "total", "epoch", "in_epoch",
          "first_epoch", "step_is_late", "loss_terms", "throughput", "resumed_step")  # fmt: skip
EMPTY = {"in_epoch": False, "step_is_late": False, "loss_terms": (), "throughput": {}}


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in FORMATS], ids=[row[0] for row in FORMATS])
def test_a_line_gives_exactly_its_numbers(text, expected):
    reading = read(text)
    assert {name: getattr(reading, name) for name in FIELDS} == {
        name: expected.get(name, EMPTY.get(name)) for name in FIELDS
    }


@pytest.mark.parametrize("text", [row[1] for row in FORMATS], ids=[row[0] for row in FORMATS])
def test_a_line_reads_the_same_with_the_prefix_of_a_rank_or_a_logger(text):
    plain = read(text)
    for prefix in ("[rank3]: ", "[1,0]<stdout>: ", "2026-03-01 10:00:00,123 INFO root: "):
        prefixed = read(prefix + text) or Reading()
        for name in ("step", "loss", "lr", "grad_norm", "scale", "throughput", "loss_terms"):
            assert getattr(prefixed, name) == getattr(plain, name), (prefix, name)


def test_the_parts_of_a_loss_are_kept_by_name():
    assert read("total_loss=2.5, kd=0.125, ce=2.375").values == {"total_loss": 2.5, "kd": 0.125, "ce": 2.375}


@pytest.mark.parametrize(
    "text",
    [
        "step_avg:nanms step:3 loss:1.0",
        "0%|          | 0/16 [00:00<?, ?it/s, loss=4.1]",
        "step=1 loss=2.0 samples_per_second=inf",
        "step=1 loss=2.0 it/s=0",
        "12 it/stack loss=1.0",
        "time: 0.5",
    ],
)
def test_a_value_that_is_not_a_throughput_is_not_read_as_one(text):
    assert read(text).throughput == {}


def test_the_length_of_a_run_is_read_from_the_lines_of_transformers():
    assert read("  Num Epochs = 3").values == {"num_train_epochs": 3}
    assert read("[INFO|trainer.py:2417]   Total optimization steps = 1,200").values["total_optimization_steps"] == 1200


# Tables


def rows(*lines):
    table = Tables()
    return [table.read(line) for line in lines]


def test_the_table_of_fastai_is_read_with_single_blanks_and_with_two_words_in_a_name():
    for head in ("epoch train_loss valid_loss accuracy", "epoch train loss valid loss accuracy"):
        row = rows(head, "3 0.25 nan 0.81")[1]
        assert (row.epoch, row.loss) == (3, 0.25) and math.isnan(row.held_out_loss), head
    assert rows("the loss of epoch three", "3 0.25 0.5 0.81 9")[1] is None


def test_a_csv_is_read_by_its_header():
    head, first, second = rows("epoch,step,train_loss,val_loss,lr,loss_scale", "0,10,2.5,,0.001,1024", "0,20,nan,1.5,,")
    assert head is None
    assert (first.step, first.epoch, first.loss, first.lr, first.scale) == (10, 0, 2.5, 0.001, 1024)
    assert first.held_out_loss is None
    assert (second.step, second.held_out_loss, second.lr) == (20, 1.5, None) and second.loss != second.loss


def test_columns_separated_by_blanks_are_read_by_their_header():
    read_ = rows(
        "  epoch    train_loss    valid_loss     dur",
        "-------  ------------  ------------  ------",
        "      1        2.5000        2.2500  0.0103",
        "      2           nan           nan  0.0074",
    )
    assert read_[:2] == [None, None]
    assert (read_[2].epoch, read_[2].loss, read_[2].held_out_loss, read_[2].step) == (1, 2.5, 2.25, None)
    assert read_[3].loss != read_[3].loss


def test_ultralytics_names_its_losses_in_a_header():
    head = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"
    for bar in ("12%|█▎        | 3/24 [00:01<00:08,  2.5it/s]", "12% ━─────────── 3/24 2.5it/s 1.0s<8.0s"):
        _, row, other = rows(
            head,
            f"        2/50       1.6G      1.203      2.301      1.102         11        640: {bar}",
            "  all  8  8",
        )
        assert (row.step, row.total, row.epoch, row.in_epoch, row.first_epoch) == (3, 24, 2, True, 1)
        assert row.values == {"Epoch": 2, "box_loss": 1.203, "cls_loss": 2.301, "dfl_loss": 1.102, "Instances": 11,
                              "Size": 640}  # fmt: skip
        assert row.loss_terms == ("box_loss", "cls_loss", "dfl_loss") and row.throughput == {"it/s": 2.5}
        assert other is None
    bad = rows(head, "        2/50       1.6G      1.203        nan      1.102         11        640: 12%|█▎")[1]
    assert bad.loss != bad.loss and bad.loss_name == "cls_loss"


def test_a_table_of_pandas_has_an_index_and_writes_nan_for_what_is_missing():
    _, first, second = rows(
        "   epoch  step      loss  val_acc", "0      0    10  2.500000      NaN", "1      0    20       NaN      0.5"
    )
    assert (first.step, first.loss) == (10, 2.5)
    assert second is None or second.loss is None


def test_columns_separated_by_bars_are_read_by_their_header():
    _, rule, row = rows("| step | loss | lr |", "|------|------|----|", "| 10 | 2.5 | 1e-4 |")
    assert rule is None and (row.step, row.loss, row.lr) == (10, 2.5, 1e-4)


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("run_name  best_val_loss   best_iter  final_val_loss", "G1_weights  1.461392 4400.0  NaN"),
        ("epoch step loss", "a word more"),
        ("epoch step loss", "1 2 3 4 5"),
        ("epoch,step,loss", "1,2"),
        ("the loss of every epoch", "1 2 3 4 5"),
        ("name, loss", "a, 1.5"),
    ],
)
def test_a_line_that_is_not_a_row_of_the_table_is_not_read(head, row):
    assert rows(head, row) == [None, None]


@pytest.mark.parametrize(
    "line", ["loss: nanxxx, ips: 423.9 samples/s", "step 3 loss: nan.0", "CTCLoss: 1.5, loss: infxx"]
)
def test_a_padded_nan_or_inf_is_not_finite(line):
    assert not math.isfinite(read(line).loss)


def test_a_field_of_an_object_literal_is_not_a_loss():
    assert read("      train_loss: NaN,") is None
    assert math.isnan(read('  "train_loss": NaN,').loss)


def test_the_gradient_norm_of_one_of_several_networks_is_read():
    assert read("step 3 loss 0.5 actor/grad_norm:2.5").grad_norm == 2.5
    assert read("step 3 loss 0.5 max_grad_norm: 1.0").grad_norm is None


def test_a_table_that_rich_draws_has_a_thick_header_and_may_cut_a_number():
    head = "\u2503 epoch \u2503 train_loss \u2503 val_mae \u2503 lr \u2503"
    _, first, cut, last = rows(
        head,
        "\u2502 0     \u2502 2.5        \u2502 nan     \u2502 60 \u2502",
        "\u2502 1     \u2502 9675508374\u2026 \u2502 0.5 \u2502 60 \u2502",
        "\u2502 2     \u2502 nan        \u2502 nan     \u2502 60 \u2502",
    )
    assert (first.epoch, first.loss, first.lr) == (0, 2.5, 60)
    assert cut is None and math.isnan(last.loss)


def test_a_loss_without_a_name_may_be_nan():
    found = read("0m 3s (- 0m 40s) (50 8%) nan")
    assert found.step == 50 and math.isnan(found.loss)


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_a_csv_may_name_its_loss_by_its_function_beside_the_lr(separator):
    head, row = (text.replace(",", separator) for text in ("epoch,lr,train_mse,val_mse,seconds", "3,0.1,2.5,0.9,1.2"))
    (_, read_) = rows(head, row)
    assert (read_.epoch, read_.loss, read_.lr, read_.held_out_loss) == (3, 2.5, 0.1, None)
    # Without it, it may be a table of scores.
    assert rows(head.replace("lr", "size"), row)[1] is None


@pytest.mark.parametrize("text", ["classes 1,200,300 loss", "betas=0.9,0.999", "shape: (3,224,224)", "ids 4,263,11"])
def test_a_list_is_no_number_with_thousands(text):
    found = read(f"{text} step=7 loss=2.5")
    assert (found.step, found.loss) == (7, 2.5) and not any(value > 999 for value in found.values.values())


def test_it_is_a_step_only_at_the_beginning_of_a_line():
    assert read("do it 3 times, loss 0.5").step is None


@pytest.mark.parametrize("raw", ["-1.#IND", "1.#QNAN", "-1.#IND00"])
def test_nan_is_read_as_windows_prints_it(raw):
    assert math.isnan(read(f"Iteration 20, loss = {raw}").loss)


@pytest.mark.parametrize(
    "text",
    [
        "no loss: train accuracy = 0.5 | dev accuracy = 0.6",
        "loss and accuracy: train 0.5 val 0.6",
        "the loss of epoch 3 was not saved",
        "loss (test): 0.5",
        "loss of 3 packets in 20",
        "it follows the loss; test 4 passed",
    ],
)
def test_prose_about_a_loss_is_no_training_loss(text):
    found = read(text)
    assert found is None or found.loss is None


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("INFO:tensorflow:loss = 2.5, step = 300 (12.1 sec)", 2.5),
        ("Progress on:train 7.0it/90it rate:1.2it/s postfix:loss=2.5", 2.5),
        ("completed step: 4, TFLOP/s/device: 12.3, total_weights: 77, loss: 2.5", 2.5),
        ("Epoch 4 [12.3s]: train==[2.5=2.25 + 0.25]", 2.5),
        ("EPOCH[4/90] loss2.5-|Sample:1.2|", 2.5),
        ("Train loss 40 2.5 Grad Norm 1.25 0.3s/it", 2.5),
        ("第4轮 损失: 2.5 准确率: 0.3", 2.5),
        ("Эпоха 4: потери 2.5", 2.5),
        ("Epoch: 4 | kd_loss 0.5 | T_Loss 2.5", 2.5),
        ("app.train:loss_step:812 saved", None),
        ("损失函数: 交叉熵", None),
    ],
)
def test_a_loss_is_read_in_the_formats_of_more_programs(line, loss):
    reading = read(line)
    assert (reading.loss if reading is not None else None) == loss
