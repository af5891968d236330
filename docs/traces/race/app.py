"""A program that hands a column of one library to another one."""

import array

import frame
import paint

from arrowdev.testing import software_device

with software_device(races=True) as device:
    column = paint.Column(device, array.array("d", range(1000)))
    total = frame.Frame(device, column)
    device.synchronize()
