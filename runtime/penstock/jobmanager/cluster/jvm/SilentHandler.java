package penstock;

import java.nio.ByteBuffer;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;

/** A handler that does not tell Spark's handler when a connection opens. Spark's handler would send messages before
 * authentication. */
public class SilentHandler extends RpcHandler {
  private final RpcHandler next;

  public SilentHandler(RpcHandler next) {
    this.next = next;
  }

  public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
    this.next.receive(client, message, callback);
  }

  public void receive(TransportClient client, ByteBuffer message) {
    this.next.receive(client, message);
  }

  public StreamManager getStreamManager() {
    return this.next.getStreamManager();
  }

  public void channelInactive(TransportClient client) {
    this.next.channelInactive(client);
  }

  public void exceptionCaught(Throwable cause, TransportClient client) {
    this.next.exceptionCaught(cause, client);
  }
}
