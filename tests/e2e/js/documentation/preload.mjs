// For samples that are written for browsers: node has a global WebSocket from version 22 on.
import WebSocket from "ws";

globalThis.WebSocket ??= WebSocket;
