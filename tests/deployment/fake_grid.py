"""A Grid whose nodes run the real ClientApp in this process, at the moment their replies are pulled."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedclade.deployment.flower.client_app import app

Fault = Callable[[Message, Context], Message | None]  # in place of the ClientApp; None: never an answer
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


@dataclass
class Node:
    context: Context
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)  # by message type and round


class FakeGrid(Grid):
    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.seen: list[tuple[str, int, str]] = []  # type, node, round
        self.on_push: Callable[[Message], None] = lambda message: None
        self._ids = count(1)
        self._waiting: dict[str, Message] = {}

    def join(self, node_id: int, run_config: dict | None = None, **node_config: object) -> Node:
        config = {name.replace("_", "-"): value for name, value in node_config.items()}
        node = Node(Context(1, node_id, config, RecordDict(), run_config or {}))
        self.nodes[node_id] = node
        return node

    def leave(self, node_id: int) -> None:
        del self.nodes[node_id]

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            name = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = name
            self._waiting[name] = message
            self.seen.append((message.metadata.message_type, message.metadata.dst_node_id, message.metadata.group_id))
            self.on_push(message)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for name in message_ids:
            node = self.nodes.get(self._waiting[name].metadata.dst_node_id) if name in self._waiting else None
            if node is not None and (reply := self._reply(node, self._waiting.pop(name))) is not None:
                replies.append(reply)
        return replies

    def _reply(self, node: Node, message: Message) -> Message | None:
        fault = node.faults.get((message.metadata.message_type, message.metadata.group_id))
        try:
            return fault(message, node.context) if fault else app(message, node.context)
        except Exception as error:
            return Message(Error(code=0, reason=str(error)), reply_to=message)

    def set_run(self, run: object) -> None: ...

    @property
    def run(self) -> object: ...

    def create_message(self, *_: object, **__: object) -> Message: ...

    def send_and_receive(self, *_: object, **__: object) -> list[Message]: ...
