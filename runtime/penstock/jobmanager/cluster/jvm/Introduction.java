package penstock;

import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;

/** Notifies a handler, on its channel's thread, that its connection can be used. */
public class Introduction implements Runnable {
  private final RpcHandler handler;
  private final TransportClient client;

  public Introduction(RpcHandler handler, TransportClient client) {
    this.handler = handler;
    this.client = client;
  }

  public void run() {
    this.handler.channelActive(this.client);
  }
}
