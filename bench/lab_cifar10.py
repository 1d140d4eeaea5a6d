#!/usr/bin/env python3
"""The lab of seed 003 in PyTorch, as it stands there, on CIFAR-10's binary files; examples/lab_cifar10.rs is the same
in Rust. Prints the seconds of the parts.

    V/bin/python bench/lab_cifar10.py DATA [--epochs N] [--seed S]
"""
import argparse, time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torchvision.transforms as transforms

from loader import Cifar10

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
start = time.perf_counter()

transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
trainset = Cifar10(args.data, True, transform)
trainloader = torch.utils.data.DataLoader(trainset, batch_size=4, shuffle=True, num_workers=2)
testset = Cifar10(args.data, False, transform)
testloader = torch.utils.data.DataLoader(testset, batch_size=4, shuffle=False, num_workers=2)
classes = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
trained = time.perf_counter()
for epoch in range(args.epochs):
    running_loss = 0.0
    for i, (inputs, labels) in enumerate(trainloader, 0):
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        if i % 2000 == 1999:
            print("[%d, %5d] loss: %.3f" % (epoch + 1, i + 1, running_loss / 2000), flush=True)
            running_loss = 0.0
print("Finished Training")
tested = time.perf_counter()

class_correct, class_total = [0] * 10, [0] * 10
with torch.no_grad():
    for images, labels in testloader:
        _, predicted = torch.max(net(images), 1)
        for label, right in zip(labels, predicted == labels):
            class_correct[label] += right.item()
            class_total[label] += 1
end = time.perf_counter()
print("Accuracy of the network on the 10000 test images: %.2f %%" % (100 * sum(class_correct) / sum(class_total)))
for i in range(10):
    print("Accuracy of %5s : %2d %%" % (classes[i], 100 * class_correct[i] / class_total[i]))
print(f"seconds: training {tested - trained:.1f}, one test pass {end - tested:.1f}, all {end - start:.1f}")
