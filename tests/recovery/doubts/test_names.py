"""Tests what a name may stand for."""

import pytest

from rung.recovery.doubts.names import Column, column


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("squared error", Column.LOSS),
        ("InfoNCE", Column.LOSS),
        ("-elbo", Column.LOSS),
        ("train_loss", Column.LOSS),
        ("valid_objective", Column.HELD_OUT),
        ("policy_loss", Column.RIVAL),
        ("d loss", Column.RIVAL),
        ("lossd", Column.RIVAL),
        ("errg", Column.RIVAL),
        ("clsloss", Column.LOSS),
        ("loss2", Column.LOSS),
        ("bestloss", Column.SCORE),
        ("lossless", Column.UNKNOWN),
        ("l_pix", Column.LOSS),
        ("l_d_real", Column.RIVAL),
        ("train-cross-entropy", Column.LOSS),
        ("val cross_entropy", Column.HELD_OUT),
        ("|g|", Column.NORM),
        ("grad_norm", Column.NORM),
        ("loss scale", Column.SCALE),
        ("ppl", Column.PERPLEXITY),
        ("learning rate", Column.LR),
        ("step size", Column.LR),
        ("skipped", Column.SKIPS),
        ("minibatch", Column.STEP),
        ("hr@10", Column.SCORE),
        ("valid_auc_class7", Column.SCORE),
        ("best_loss", Column.SCORE),
        ("zeal", Column.UNKNOWN),
    ],
)
def test_a_name_says_what_its_column_holds(name, what):
    assert column(name) is what
