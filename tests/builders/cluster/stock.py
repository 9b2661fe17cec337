"""A stock SandboxFusion server on a cluster: the double of the integration tests in an image of its own, since the
published image comes from a registry that is not reached here.
"""

import json
from pathlib import Path

from builders.cluster.images import Image, Images

DOUBLE = Path(__file__).parents[1] / "fusion" / "server.py"
DIRECTORY = "/opt/stock"
SERVES = f"""
import asyncio, os, signal, sys
sys.path.insert(0, "{DIRECTORY}")
from stock_fusion import StockDouble, stock_double

async def serve():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with stock_double(StockDouble(), os.environ["HOST"], int(os.environ["PORT"])):
        await stop.wait()

asyncio.run(serve())
"""


def stock_image(builder: Images) -> Image:
    """Put the double into an image that starts as the stock one does: as root, by its own command, with HOST and PORT.

    Raises:
        BuildFailedError: the build failed.
    """
    container = builder.buildah("from", builder.build("sandbox").digest).strip()
    builder.buildah("add", "--quiet", container, str(DOUBLE), f"{DIRECTORY}/stock_fusion.py")
    command = json.dumps(["python", "-c", SERVES])
    builder.buildah("config", "--user", "0", "--entrypoint", "[]", "--cmd", command, container)
    return Image(builder, builder.buildah("commit", "--quiet", "--timestamp", "0", "--rm", container).split()[-1])
