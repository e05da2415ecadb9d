"""Publish/subscribe over HTTP: one file for each thing that can be done."""

from lavant.service.api.application import api_application
from lavant.service.api.desk import Desk

__all__ = ["Desk", "api_application"]
