package penstock;

import io.netty.channel.Channel;
import io.netty.channel.socket.SocketChannel;
import java.util.ArrayList;
import org.apache.spark.SparkEnv;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientBootstrap;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.crypto.AuthClientBootstrap;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.TransportChannelHandler;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.server.TransportServerBootstrap;
import org.apache.spark.network.util.TransportConf;

/**
 * The replacement of Spark's TransportContext for the writers and readers of the streaming shuffle. Spark's servers
 * accept any client and listen on all addresses. These servers listen on the address of the executor's blocks, and both
 * sides authenticate like the rest of Spark. The settings enable TLS.
 */
public class SealedTransport extends TransportContext implements TransportServerBootstrap, TransportClientBootstrap {
  private final RpcHandler handler;

  public SealedTransport(TransportConf conf, RpcHandler handler) {
    super(conf, handler);
    this.handler = handler;
  }

  public TransportServer createServer() {
    ArrayList bootstraps = new ArrayList();
    bootstraps.add(this);
    bootstraps.add(new AuthServerBootstrap(this.getConf(), SparkEnv.get().securityManager()));
    return this.createServer(SparkEnv.get().blockManager().blockManagerId().host(), 0, bootstraps);
  }

  public TransportClientFactory createClientFactory() {
    ArrayList bootstraps = new ArrayList();
    bootstraps.add(new AuthClientBootstrap(
        this.getConf(), SparkEnv.get().conf().getAppId(), SparkEnv.get().securityManager()));
    bootstraps.add(this);
    return this.createClientFactory(bootstraps);
  }

  public TransportChannelHandler initializePipeline(SocketChannel channel, boolean isClient) {
    return this.initializePipeline(channel, new SilentHandler(this.handler), isClient);
  }

  public TransportChannelHandler initializePipeline(SocketChannel channel, RpcHandler handler, boolean isClient) {
    TransportChannelHandler made = super.initializePipeline(channel, handler, isClient);
    channel.pipeline().replace("encoder", "encoder", new SealedEncoder());
    return made;
  }

  /** The writer's side of a connection, after the authentication. */
  public RpcHandler doBootstrap(Channel channel, RpcHandler next) {
    return new GuardedHandler(channel, next);
  }

  /** The reader's side after authentication. The reader sends its request only now. */
  public void doBootstrap(TransportClient client, Channel channel) {
    channel.eventLoop().execute(new Introduction(this.handler, client));
  }
}
