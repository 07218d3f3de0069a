"""The loop of the families in a script that attaches itself to Rung: the only one that imports it."""

import rung_inside
from options import SAVE, Log, batch_of, optimizer_of, options, scheduler_of, validate
from tasks import DATA, MODELS

args = options()
data, model = DATA[args.model](), MODELS[args.model]()
optimizer = optimizer_of(args, model.parameters())
scheduler = scheduler_of(args, optimizer)
words = {"float16": "amp_fp16", "bfloat16": "bf16", "float32": "fp32"}
own = {"precision": words[args.precision], "clip": args.clip}
run = rung_inside.attach(model, optimizer, scheduler, device="cpu", defaults=own)
log = Log(args)

for step in range(run.resume(), args.steps):
    x, y, weight = batch_of(args, data, step)
    with run.autocast():
        loss = data.loss(model(x), y) * weight
    lr = optimizer.param_groups[0]["lr"]
    run.step(loss, step)
    log(step + 1, loss, lr)
    if run.due(step + 1, every=SAVE):
        run.save(step + 1)

validate(data, model)
