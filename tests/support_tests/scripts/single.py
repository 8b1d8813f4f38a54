"""Logistic regression on the digits in one process, as a user would write it."""

import csv

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(count):
    digits = load_digits()
    images = torch.from_numpy((digits.data / 16).astype("float32"))
    labels = torch.from_numpy(digits.target)
    return TensorDataset(images[:count], labels[:count]), TensorDataset(images[-90:], labels[-90:])


def evaluate(model, loader):
    correct = 0
    for images, labels in loader:
        with torch.no_grad():
            correct += (model(images).argmax(1) == labels).sum().item()
    return correct


def main():
    torch.manual_seed(7)
    train_set, test_set = load(301)
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=30)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for epoch in range(2):
        model.train()
        for images, labels in train_loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        correct = evaluate(model, test_loader)
        print(f"epoch {epoch}: {correct} of 90")
        with open("log.csv", "a", newline="") as file:
            csv.writer(file).writerow([epoch, correct])
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
