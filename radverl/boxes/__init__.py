"""Boxes in images: overlap, the spaces that models and data sets write them in, and their text."""

from radverl.boxes.geometry import clamp, convert, iou
from radverl.boxes.parse import parse_boxes
from radverl.boxes.written import write_boxes

__all__ = ["clamp", "convert", "iou", "parse_boxes", "write_boxes"]
