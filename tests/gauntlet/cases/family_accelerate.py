"""The models of the families in a loop of Accelerate."""

from accelerate import Accelerator
from options import SAVE, Log, batch_of, optimizer_of, options, scheduler_of, set_lr, validate
from tasks import DATA, MODELS

args = options()
accelerator = Accelerator(cpu=True)
data, model = DATA[args.model](), MODELS[args.model]()
optimizer = optimizer_of(args, model.parameters())
scheduler = scheduler_of(args, optimizer)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
log, start, arc = Log(args), 0, None
if args.resume:
    accelerator.load_state(args.resume)
    start = int(args.resume.rpartition("_")[2])
    set_lr(args, optimizer, scheduler.scheduler)
if args.arc:
    from arc import Controller

    arc = Controller(model, optimizer.optimizer, scheduler.scheduler)

for step in range(start, args.steps):
    x, y, weight = batch_of(args, data, step)
    optimizer.zero_grad()
    loss = data.loss(model(x), y) * weight
    accelerator.backward(loss)
    if arc is None or not arc.step(loss).should_skip:
        if args.clip:
            accelerator.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
    log(step + 1, loss, optimizer.param_groups[0]["lr"])
    scheduler.step()
    if (step + 1) % SAVE == 0:
        accelerator.save_state(f"{args.out}/step_{step + 1}")

validate(data, accelerator.unwrap_model(model))
