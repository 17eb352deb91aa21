"""08_resnet in Python, in fp32, over DistributedDataParallel."""

import argparse
import gzip
import pathlib

import torch
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from common import Results, parallel, processes, rank, ranks
from models import ResNet

MEAN = torch.tensor([125.3, 123.0, 113.9]).view(3, 1, 1)
DEVIATION = torch.tensor([63.0, 62.1, 66.7]).view(3, 1, 1)


class Images(Dataset):
    """Files of CIFAR-10's binary version."""

    def __init__(self, paths, augment):
        self.augment = augment
        content = [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                   for data in (pathlib.Path(path).read_bytes() for path in paths)]
        records = torch.frombuffer(bytearray(b"".join(content)), dtype=torch.uint8).view(-1, 3073)
        self.labels, self.images = records[:, 0].long(), records[:, 1:].reshape(-1, 3, 32, 32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            down, right = torch.randint(0, 9, (2,)).tolist()
            image = pad(image, (4, 4, 4, 4))[:, down:down + 32, right:right + 32]
            image = image.flip(2) if torch.rand(()) < 0.5 else image
        return image, self.labels[index]


def normalized(pixels):
    return (pixels.float() - MEAN) / DEVIATION


@torch.no_grad()
def accuracy(model, images):
    model.eval()
    right = sum((model(normalized(pixels)).argmax(1) == labels).sum().item()
                for pixels, labels in DataLoader(images, 100))
    return right / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--test", nargs="+", required=True)
    parser.add_argument("--run", default="runs/python_resnet")
    parser.add_argument("--depth", type=int, default=18)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--plain-images", action="store_true")
    parser.add_argument("--wire", default="fp32")
    parser.add_argument("--resume", action="store_true", help="go on after the last whole epoch in --run, if any")
    options = parser.parse_args()
    images, test = Images(options.train, not options.plain_images), Images(options.test, False)
    sampler = DistributedSampler(images, ranks(), rank(), shuffle=True, drop_last=True)
    loader = DataLoader(images, options.batch_size // ranks(), sampler=sampler, drop_last=True)
    model = ResNet(options.depth, options.classes, options.width)
    wrapped = parallel(model, options.wire)
    optimizer = torch.optim.SGD(wrapped.parameters(), options.learning_rate, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.learning_rate, options.epochs * len(loader),
                                                   cycle_momentum=False)
    results = Results(options.run, options.resume, model=model, optimizer=optimizer, schedule=schedule)
    for epoch in results.epochs(options.epochs):
        sampler.set_epoch(epoch)
        wrapped.train()
        for pixels, labels in loader:
            optimizer.zero_grad()
            cross_entropy(wrapped(normalized(pixels)), labels).backward()
            optimizer.step()
            schedule.step()
        results.epoch(accuracy(model, test))
    curve = results.values["curve"]
    results.write({"test accuracy": curve[-1], "best test accuracy": max(curve)})


if __name__ == "__main__":
    with processes():
        main()
