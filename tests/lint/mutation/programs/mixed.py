"""Mixed precision with a scaler, clipping after unscale_, a tracker on rank 0."""

import os

import torch
import torch.distributed as dist
from torch import amp, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch.utils.tensorboard import SummaryWriter
from torchvision import datasets, transforms


class Vision(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, images):
        return self.head(self.norm(self.stem(images)).relu().mean((2, 3)))


def train(model, loader, sampler, writer, epochs=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    scaler = amp.GradScaler("cuda")
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        running = torch.zeros((), device="cuda")
        for images, labels in loader:
            images = images.cuda(non_blocking=True)
            labels = labels.cuda(non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with amp.autocast("cuda", dtype=torch.float16):
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            running += loss.detach()
        mean = running / len(loader)
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        if writer is not None:
            writer.add_scalar("loss", mean.item(), epoch)


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    torch.manual_seed(0)
    pictures = datasets.CIFAR10("data", transform=transforms.ToTensor())
    sampler = DistributedSampler(pictures)
    loader = DataLoader(pictures, 32, sampler=sampler, num_workers=2, drop_last=True)
    model = DDP(Vision(10).cuda(), device_ids=[gpu])
    main_process = dist.get_rank() == 0
    writer = SummaryWriter("logs") if main_process else None
    train(model, loader, sampler, writer)
    if main_process:
        writer.close()
        torch.save(model.module.state_dict(), "vision.pth")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
