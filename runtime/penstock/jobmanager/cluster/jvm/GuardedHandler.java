package penstock;

import io.netty.channel.Channel;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;

/**
 * The handler of a streaming shuffle's writer, protected from unauthenticated clients. Before authentication, an error
 * of a connection only closes this connection. Without this class, Spark would fail the task.
 */
public class GuardedHandler extends RpcHandler implements Runnable {
  private static final long PATIENCE_S = 30;

  private final Channel channel;
  private final RpcHandler next;
  private final Allowance allowance = new Allowance();
  private volatile boolean isKnown;

  public GuardedHandler(Channel channel, RpcHandler next) {
    this.channel = channel;
    this.next = next;
    channel.pipeline().addLast("allowance", this.allowance);
    channel.eventLoop().schedule(this, PATIENCE_S, TimeUnit.SECONDS);
  }

  /** Closes the connection if the client has not authenticated in time. */
  public void run() {
    if (!this.isKnown) {
      this.channel.close();
    }
  }

  /** Called for messages, which arrive here only after authentication. */
  private void welcome() {
    if (!this.isKnown) {
      this.isKnown = true;
      this.channel.pipeline().remove(this.allowance);
    }
  }

  public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
    this.welcome();
    this.next.receive(client, message, callback);
  }

  public void receive(TransportClient client, ByteBuffer message) {
    this.welcome();
    this.next.receive(client, message);
  }

  public StreamManager getStreamManager() {
    return this.next.getStreamManager();
  }

  public void channelInactive(TransportClient client) {
    if (this.isKnown) {
      this.next.channelInactive(client);
    }
  }

  public void exceptionCaught(Throwable cause, TransportClient client) {
    if (this.isKnown) {
      this.next.exceptionCaught(cause, client);
    } else {
      this.channel.close();
    }
  }
}
